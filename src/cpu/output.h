// From the merged state of packed rows to `out` and `lse`.
#pragma once

#include <cstdint>

#include "core/schedule.h"
#include "leanattn/softmax_state.h"

namespace leanattn::cpu {

/// States of consecutive packed rows: row r has state (max[r], sum[r]) and O at
/// out + r·out_floats. `out` may be nullptr where every row is empty.
struct RowStates {
  const float* max = nullptr;
  const float* sum = nullptr;
  const float* out = nullptr;
  std::int64_t out_floats = 0;
};

/// Applies sinks, normalises and writes packed rows `rows` of a sequence and KV head.
void write_rows(const Plan& plan, const Arguments& arguments, const SequenceShape& shape,
                std::int64_t sequence, std::int64_t kv_head, Range rows, const RowStates& states);

}  // namespace leanattn::cpu
