#include "cpu/rules.h"

#include <algorithm>
#include <limits>

#include "leanattn/half.h"

namespace leanattn::cpu {

RowRules row_rules(const Segment& segment, std::int64_t packed_row) {
  const std::int64_t group = segment.problem->group_size();
  RowRules row;
  row.query = packed_row / group;
  row.q_head = segment.kv_head * group + packed_row % group;
  row.position = segment.kv_len - segment.q_len + row.query;
  if (segment.problem->has_alibi) {
    const TensorView<1>& slopes = segment.arguments->alibi_slopes;
    row.alibi_slope = load_float(slopes.data, slopes.type, slopes.offset(row.q_head));
  }
  return row;
}

bool has_score_rules(const Problem& problem) {
  return problem.rules.softcap > 0 || problem.has_alibi || problem.has_bias ||
         problem.has_tree_mask;
}

bool add_bias(const Segment& segment, const RowRules& row, std::int64_t first_key, Range visible,
              float* scores) {
  constexpr float kHiddenScore = -std::numeric_limits<float>::infinity();
  const TensorView<4>& bias = segment.arguments->bias;
  const std::int64_t base = bias.offset(segment.sequence, row.q_head, row.query, first_key);
  bool hid = false;
  for (std::int64_t j = visible.begin; j < visible.end; ++j) {
    const std::int64_t i = base + j * bias.strides[3];
    if (bias.type == ElementType::kBool) {
      if (static_cast<const std::uint8_t*>(bias.data)[i] == 0) scores[j] = kHiddenScore;
    } else {
      const float added = load_float(bias.data, bias.type, i);
      // The key may hold NaN: what −∞ hides is not added to.
      scores[j] = added == kHiddenScore ? kHiddenScore : scores[j] + added;
    }
    hid |= scores[j] == kHiddenScore;
  }
  return hid;
}

bool hide_by_tree(const Segment& segment, const RowRules& row, std::int64_t first_key,
                  Range visible, float* scores) {
  const TensorView<3>& tree = segment.arguments->tree_mask;
  const std::int64_t newest = segment.kv_len - segment.q_len;  // first key of the tree
  const std::int64_t base = tree.offset(segment.sequence, row.query);
  bool hid = false;
  for (std::int64_t j = std::max(visible.begin, newest - first_key); j < visible.end; ++j) {
    const std::int64_t node = first_key + j - newest;
    if (static_cast<const std::uint8_t*>(tree.data)[base + node * tree.strides[2]] == 0) {
      scores[j] = -std::numeric_limits<float>::infinity();
      hid = true;
    }
  }
  return hid;
}

}  // namespace leanattn::cpu
