// The workspace of a plan: counters, zero between calls, then partials.
#pragma once

#include <cstddef>
#include <cstdint>

#include "leanattn/attention.h"

namespace leanattn::cuda {

struct Workspace {
  std::int64_t num_slices = 0;    // of a partial
  std::int64_t num_counters = 0;  // uint32 each
  bool counts_claims = false;     // the last of them counts the shares that have been claimed
  std::size_t partials = 0;       // offset in bytes
  std::size_t bytes = 0;
};

[[nodiscard]] Workspace workspace_of(const Plan& plan);

/// Workers that a launch of a plan has at once. Of stream_k others may follow them.
[[nodiscard]] std::int64_t num_places(const Plan& plan);

/// Row blocks that a kernel counts: of all sequences as many as the longest has.
[[nodiscard]] std::int64_t num_row_blocks(const Problem& problem, const Kernel& kernel);

}  // namespace leanattn::cuda
