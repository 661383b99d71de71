// When the thread blocks of a call began and ended: for profiling, off unless asked for.
#pragma once

#include <cstdint>

namespace leanattn::cuda {

/// From now on the kernel of a call writes the start and the end of each of its blocks,
/// in nanoseconds of the device's clock, to `device_memory` [num_blocks][2]; its later
/// launches, if any, do not. Null: off again. For the whole process; not beside `run`.
void set_timeline(std::int64_t* device_memory, std::int64_t num_blocks);

/// Where a call of `num_blocks` blocks writes; null if nowhere. Throws InvalidArgument where
/// there is no room for so many.
[[nodiscard]] std::int64_t* timeline_for(std::int64_t num_blocks);

}  // namespace leanattn::cuda
