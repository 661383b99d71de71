// What turns q·k into a score in base 2, key by key: softcap, ALiBi, bias, and which
// keys a row sees. Only chunks in which rows differ, or that some rule touches, come here.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/cursor.cuh"
#include "leanattn/softmax_state.h"

namespace leanattn::cuda {

/// Element `i` of a tensor of any floating type.
[[nodiscard]] __device__ inline float load_element(const void* data, ElementType type,
                                                   std::int64_t i) {
  switch (type) {
    case ElementType::kFloat16: return __half2float(static_cast<const __half*>(data)[i]);
    case ElementType::kBFloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

/// Which query a packed row is.
struct QueryPlace {
  int sequence = 0;  // outermost index of q, out and lse: 0 if ragged
  int query = 0;     // of q, out and lse
  int q_head = 0;

  [[nodiscard]] __device__ std::int64_t offset(const RowTensor& tensor) const {
    return sequence * tensor.sequence_stride + query * tensor.query_stride +
           q_head * tensor.head_stride;
  }
};

[[nodiscard]] __device__ inline QueryPlace query_place(const Call& call, const Segment& segment,
                                                       int packed_row) {
  if (call.one_block_sees_all) {
    return {segment.sequence, 0, segment.kv_head * call.group.value() + packed_row};
  }
  const int query = packed_row / call.group;
  const bool ragged = call.q_offsets.data != nullptr;
  return {ragged ? 0 : segment.sequence, segment.block.first_query + query,
          segment.kv_head * call.group.value() + packed_row - query * call.group.value()};
}

/// Whether the rows of an output tile can see different keys.
[[nodiscard]] __device__ inline bool rows_see_different_keys(const Call& call) {
  return call.max_q_len > 1 || call.bias.data != nullptr || call.tree.data != nullptr;
}

/// Whether a score of keys [first_key, first_key + 16) is more than scale·(q·k).
[[nodiscard]] __device__ inline bool needs_rules(const Call& call, const Segment& segment,
                                                 int first_key, int tile_m) {
  if (call.has_score_rules) return true;
  if (first_key < segment.keys.begin || first_key + 16 > segment.keys.end) return true;
  if (call.one_block_sees_all || segment.block.q_len == 1) return false;
  // Keys that all rows see: those of the first row to those of the last.
  const Range32 rows = rows_of(call, segment, tile_m);
  const int position = segment.block.kv_len - segment.block.q_len;
  const int first = position + rows.begin / call.group;
  const int last = position + (rows.end - 1) / call.group;
  const int end = visible_keys(call.window, first, first, segment.block.kv_len).end;
  const int begin = visible_keys(call.window, last, last, segment.block.kv_len).begin;
  return first_key < begin || first_key + 16 > end;
}

/// The rules of one row.
struct RowRules {
  int query = 0;  // within the sequence
  int q_head = 0;
  int position = 0;
  float slope = 0;
  bool real = false;  // not past the output tile's rows
};

[[nodiscard]] __device__ inline RowRules row_rules(const Call& call, const Segment& segment,
                                                   int row, int tile_m) {
  const Range32 rows = rows_of(call, segment, tile_m);
  RowRules rules;
  rules.real = row < rows.size();
  const int packed = rows.begin + (rules.real ? row : 0);
  rules.query = packed / call.group;
  rules.q_head = segment.kv_head * call.group.value() + packed - rules.query * call.group.value();
  rules.position = segment.block.kv_len - segment.block.q_len + rules.query;
  if (call.alibi.data != nullptr) {
    rules.slope =
        load_element(call.alibi.data, call.alibi.type, rules.q_head * call.alibi.strides[0]);
  }
  return rules;
}

/// tanh to 2^-23, absolute: of softcap, that is what a sum of f32 may lose. Near 0 by its
/// series, which is 4·10^-9 off at the change.
[[nodiscard]] __device__ inline float tanh_of(float x) {
  const float square = x * x;
  float series = -1382.0f / 155925.0f;
  series = series * square + 62.0f / 2835.0f;
  series = series * square - 17.0f / 315.0f;
  series = series * square + 2.0f / 15.0f;
  series = series * square - 1.0f / 3.0f;
  series = x + x * square * series;
  const float far = 1.0f - 2.0f * __frcp_rn(1.0f + exp2_of(2.0f * kLog2E * x));
  return fabsf(x) < 0.35f ? series : far;
}

/// The natural score of `key` for a row with natural score `s` so far; −∞ if hidden.
/// `node` is the key's place in the tree.
[[nodiscard]] static __device__ __noinline__ float score_with_rules(const Call& call, int sequence,
                                                                    const RowRules row, int key,
                                                                    int node, float s) {
  if (call.softcap > 0) s = call.softcap * tanh_of(s / call.softcap);
  s -= row.slope * static_cast<float>(row.position - key);
  if (call.bias.data != nullptr) {
    const std::int64_t i = sequence * call.bias.strides[0] + row.q_head * call.bias.strides[1] +
                           row.query * call.bias.strides[2] + key * call.bias.strides[3];
    if (call.bias.type == ElementType::kBool) {
      if (static_cast<const std::uint8_t*>(call.bias.data)[i] == 0) return minus_infinity();
    } else {
      const float added = load_element(call.bias.data, call.bias.type, i);
      // The key may hold NaN: what −∞ hides is not added to.
      if (added == minus_infinity()) return added;
      s += added;
    }
  }
  if (call.tree.data != nullptr && node >= 0) {
    const std::int64_t i = sequence * call.tree.strides[0] + row.query * call.tree.strides[1] +
                           node * call.tree.strides[2];
    if (static_cast<const std::uint8_t*>(call.tree.data)[i] == 0) return minus_infinity();
  }
  return s;
}

/// The rows of an output tile that a warp has.
struct RowPart {
  int first = 0;
  int tile_m = 0;  // rows of the output tile
};

/// S[t][i] of q·k becomes the score in base 2: of row 8·t + 2·(lane % 4) + i % 2 of `part` and
/// key first_key + lane/4 + i/2·8; −∞ where the row does not see the key.
template <int kRowTiles>
__device__ void apply_rules(const Call& call, const Segment& segment, const RowPart& part,
                            int first_key, float (&S)[kRowTiles][4]) {
  // A lane finds the rules of one row, and the others ask it.
  const RowRules mine = row_rules(call, segment, part.first + lane_id(), part.tile_m);
  const int newest = segment.block.kv_len - segment.block.q_len;
#pragma unroll
  for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int lane = 8 * t + lane_id() % 4 * 2 + j;
      RowRules row;
      row.query = shuffle(mine.query, lane);
      row.q_head = shuffle(mine.q_head, lane);
      row.position = shuffle(mine.position, lane);
      row.slope = shuffle(mine.slope, lane);
      row.real = shuffle(static_cast<int>(mine.real), lane) != 0;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float& s = S[t][j + 2 * half];
        const int key = first_key + lane_id() / 4 + half * 8;
        const bool visible = row.real && key >= segment.keys.begin && key < segment.keys.end &&
                             sees(call.window, row.position, key);
        if (!visible) {
          s = minus_infinity();
        } else if (call.has_score_rules) {
          s = score_with_rules(call, segment.sequence, row, key, key - newest, s * call.scale) *
              kLog2E;
        } else {
          s *= call.scale * kLog2E;
        }
      }
    }
  }
}

}  // namespace leanattn::cuda
