// What the index tensors of a call hold: lengths, offsets, cache rows and page ids.
// On the host every run looks at them; of device memory a checked run does.
#pragma once

#include <cstdint>

#include "leanattn/attention.h"

namespace leanattn::core {

/// Throws InvalidArgument, naming the sequence and the value, unless lengths, offsets and
/// tables are within their bounds. Their shapes have been checked; they lie in host
/// memory. Returns the most keys of one sequence.
std::int64_t check_index_values(const Problem& problem, const Arguments& arguments);

/// The same for index tensors in memory of the plan's device: waits for `stream`, and
/// reads them back.
void check_index_values_of_device(const Plan& plan, const Arguments& arguments,
                                  const Stream& stream);

}  // namespace leanattn::core
