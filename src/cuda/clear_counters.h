// Makes the counters of a workspace 0 in a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace leanattn::cuda {

/// Not beside the work ahead in the stream; but the call that follows may start at once
/// (Overlap). Returns whether it was launched.
[[nodiscard]] cudaError_t clear_counters(std::uint32_t* counters, std::int64_t count,
                                         cudaStream_t stream);

}  // namespace leanattn::cuda
