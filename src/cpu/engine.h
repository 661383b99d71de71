// One call on the CPU: lay the LeanTiles out, let threads take workers, merge where
// several share an output tile. Nobody waits: the last to arrive at an output
// tile merges its partials in worker order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leanattn/attention.h"

namespace leanattn::cpu {

/// Reads the lengths and prepares `workspace`. Before any `work`.
void begin_call(const Plan& plan, const Arguments& arguments, std::byte* workspace);

/// The share of `thread` of [0, plan.num_threads).
void work_on_call(const Plan& plan, const Arguments& arguments, std::byte* workspace,
                  std::int64_t thread);

}  // namespace leanattn::cpu
