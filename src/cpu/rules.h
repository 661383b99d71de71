// What each packed row brings to its scores, and the rules that go key by key.
#pragma once

#include <cstdint>

#include "cpu/lean_tile.h"

namespace leanattn::cpu {

struct RowRules {
  std::int64_t query = 0;  // within the sequence
  std::int64_t q_head = 0;
  std::int64_t position = 0;  // kv_len − q_len + query
  float alibi_slope = 0;
};

[[nodiscard]] RowRules row_rules(const Segment& segment, std::int64_t packed_row);

/// Whether scores need more than a scale before the softmax.
[[nodiscard]] bool has_score_rules(const Problem& problem);

/// Adds the bias, or hides keys by a bool bias, in scores[visible]. Returns whether
/// a key was hidden (−∞).
bool add_bias(const Segment& segment, const RowRules& row, std::int64_t first_key, Range visible,
              float* scores);

/// Hides the keys that the tree mask hides. Returns whether a key was hidden.
bool hide_by_tree(const Segment& segment, const RowRules& row, std::int64_t first_key,
                  Range visible, float* scores);

}  // namespace leanattn::cpu
