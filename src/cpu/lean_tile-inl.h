// A segment, from packed query rows to (max, sum, O); per target. Read it first;
// score-inl.h, softmax-inl.h and accumulate-inl.h hold its three steps.
#if defined(LEANATTN_CPU_LEAN_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LEANATTN_CPU_LEAN_TILE_INL_H_
#undef LEANATTN_CPU_LEAN_TILE_INL_H_
#else
#define LEANATTN_CPU_LEAN_TILE_INL_H_
#endif

#include <algorithm>

#include "cpu/block_rows.h"
#include "cpu/softmax-inl.h"
#include "leanattn/half.h"
#include "leanattn/softmax_state.h"

HWY_BEFORE_NAMESPACE();
namespace leanattn::cpu {
namespace {
namespace HWY_NAMESPACE {

/// The code for the element types of K, V, Q and the output.
struct Steps {
  void (*pack_query)(const void* row, ElementType type, std::int64_t dim, void* packed);
  void (*score)(ScoreArgs args, std::int64_t rows);
  void (*accumulate)(AccumulateArgs args, std::int64_t rows, bool masked);
  void (*to_natural)(const float* ordered, float* natural);
  bool bf16_weights = false;
};

/// One row of q as float, in the order of the keys' vectors, zero-padded.
template <class Order>
HWY_ATTR void pack_query(const void* row, ElementType type, std::int64_t dim, void* packed) {
  float* ordered = static_cast<float*>(packed);
  for (std::int64_t i = 0; i < dim; i += kPair) {
    float natural[kPair] = {};
    for (std::int64_t n = 0; n < std::min<std::int64_t>(kPair, dim - i); ++n) {
      natural[n] = load_float(row, type, i + n);
    }
    to_vector_order<Order>(natural, ordered + i);
  }
}

#if LEANATTN_BF16_PRODUCTS
HWY_ATTR void pack_bf16_query(const void* row, ElementType, std::int64_t dim, void* packed) {
  const std::int64_t padded = ceil_div(dim, kPair) * kPair;
  auto* words = static_cast<std::uint16_t*>(packed);
  std::memcpy(words, row, static_cast<std::size_t>(dim) * sizeof(*words));
  std::fill(words + dim, words + padded, std::uint16_t{0});
}
#endif

template <class Rows>
void use_float_keys(Steps& steps) {
  steps.pack_query = pack_query<typename Rows::Order>;
  steps.score = score<FloatKeys<Rows>>;
}

template <class Values>
void use_values(Steps& steps) {
  steps.accumulate = accumulate<Values>;
  steps.to_natural = to_natural_order<typename Values::Order>;
}

Steps steps_for(const Problem& problem) {
  Steps steps;
  switch (problem.k_type) {
    case ElementType::kFloat16: use_float_keys<F16Rows>(steps); break;
    case ElementType::kBFloat16: use_float_keys<Bf16Rows>(steps); break;
    default: use_float_keys<F32Rows>(steps); break;
  }
  switch (problem.v_type) {
    case ElementType::kFloat16: use_values<FloatValues<F16Rows>>(steps); break;
    case ElementType::kBFloat16: use_values<FloatValues<Bf16Rows>>(steps); break;
    default: use_values<FloatValues<F32Rows>>(steps); break;
  }
#if LEANATTN_BF16_PRODUCTS
  constexpr ElementType kBf16 = ElementType::kBFloat16;
  if (problem.k_type == kBf16 && problem.q_type == kBf16) {
    steps.pack_query = pack_bf16_query;
    steps.score = score<Bf16Keys>;
  }
  // Weights of 8 bits are as good as an output of 8 bits.
  if (problem.v_type == kBf16 && problem.out_type == kBf16) {
    use_values<Bf16Values>(steps);
    steps.bf16_weights = true;
  }
#endif
  return steps;
}

/// Head `head` of a segment: its KV head, and its rows of scratch.
Segment of_head(const Segment& segment, std::int64_t head) {
  const std::int64_t first_row = head * segment.head_rows;
  Segment one = segment;
  one.kv_head += head;
  one.scratch.q =
      static_cast<float*>(one.scratch.q) + first_row * padded_floats(segment.problem->head_dim);
  one.scratch.out += first_row * padded_floats(segment.problem->v_head_dim);
  one.scratch.max += first_row;
  one.scratch.sum += first_row;
  return one;
}

void pack_queries(const Segment& segment, const Steps& steps, std::int64_t q_bytes) {
  const TensorView<4>& q = segment.arguments->q;
  const bool ragged = segment.problem->ragged_q;
  for (std::int64_t r = segment.rows.begin; r < segment.rows.end; ++r) {
    const RowRules row = row_rules(segment, r);
    const std::int64_t offset = ragged ? q.offset(0, segment.first_query + row.query, row.q_head)
                                       : q.offset(segment.sequence, row.query, row.q_head);
    steps.pack_query(static_cast<const char*>(q.data) + offset * size_of(q.type), q.type,
                     q.shape[3],
                     static_cast<char*>(segment.scratch.q) + (r - segment.rows.begin) * q_bytes);
  }
}

/// Scores to weights for every row of a block. Returns whether some row does not see
/// some key of [lanes.begin, lanes.end).
HWY_ATTR bool weigh(const Segment& segment, [[maybe_unused]] const Steps& steps,
                    std::int64_t first_key, Range lanes, std::int64_t out_floats) {
  const Scratch& scratch = segment.scratch;
  const Problem& problem = *segment.problem;
  const bool rules = has_score_rules(problem);
  const float to_base2 = rules ? kLog2E : segment.scale * kLog2E;
  const Range vectors{lanes.begin / kLanes * kLanes, (lanes.end + kLanes - 1) / kLanes * kLanes};
  Range seen[kMaxRows];
  bool masked = false;
  for (std::int64_t r = 0; r < segment.rows.size(); ++r) {
    const RowRules row = row_rules(segment, segment.rows.begin + r);
    const Range keys =
        intersect(visible_keys(problem.rules.window, row.position, row.position, segment.kv_len),
                  {first_key + lanes.begin, first_key + lanes.end});
    seen[r] = {keys.begin - first_key, keys.end - first_key};
    masked |= seen[r].size() != lanes.size();
    if (rules) {
      masked |= apply_rules(segment, row, first_key, vectors, seen[r], scratch.scores + r * kBlock);
    }
  }
  for (std::int64_t r = 0; r < segment.rows.size(); ++r) {
    float* scores = scratch.scores + r * kBlock;
    softmax_step(scores, vectors, seen[r], to_base2, masked, scratch.max[r], scratch.sum[r],
                 scratch.out + r * out_floats, out_floats);
#if LEANATTN_BF16_PRODUCTS
    if (steps.bf16_weights) round_weights(scores, vectors, scratch.weights + r * kBlock);
#endif
  }
  return masked;
}

/// Packs the queries of a head, and empties its states.
HWY_ATTR void start_head(const Segment& segment, const Steps& steps) {
  const Scratch& scratch = segment.scratch;
  const std::int64_t num_rows = segment.rows.size();
  pack_queries(segment, steps, padded_floats(segment.problem->head_dim) * 4);
  std::fill(scratch.max, scratch.max + num_rows, -kInfinity);
  std::fill(scratch.sum, scratch.sum + num_rows, 0.0f);
  std::fill(scratch.out, scratch.out + num_rows * padded_floats(segment.problem->v_head_dim), 0.0f);
}

/// Brings O of a head to natural order.
HWY_ATTR void finish_head(const Segment& segment, const Steps& steps) {
  float* out = segment.scratch.out;
  const std::int64_t floats = segment.rows.size() * padded_floats(segment.problem->v_head_dim);
  for (std::int64_t i = 0; i < floats; i += kPair) {
    float natural[kPair];
    steps.to_natural(out + i, natural);
    std::copy(natural, natural + kPair, out + i);
  }
}

/// The rows of K or V of head `head`, as they come from memory: of a lone head, key
/// after key; of several, the same keys of the next head, and after the last head
/// the next block of the first.
Stream stream_of(const Segment& segment, std::int64_t head, const TensorView<4>& tensor,
                 const void* const* rows, std::int64_t end) {
  const std::int64_t bytes = size_of(tensor.type);
  const bool contiguous_keys = segment.arguments->kv.layout == KvLayout::kContiguous;
  Stream stream{rows, tensor.shape[3] * bytes, 0, 0, end};
  if (segment.num_heads == 1) {
    const std::int64_t keys =
        std::clamp<std::int64_t>(kBytesAhead / stream.row_bytes, 1, kRowsAhead);
    stream.keys_ahead = keys;
    if (contiguous_keys) stream.distance = keys * tensor.strides[1] * bytes;
  } else if (head + 1 < segment.num_heads) {
    stream.distance = tensor.strides[2] * bytes;
  } else if (contiguous_keys) {
    stream.distance = (kSharedBlock * tensor.strides[1] - head * tensor.strides[2]) * bytes;
  }
  return stream;
}

/// One block of keys of one head: Q·Kᵀ, weights, P·V.
HWY_ATTR void run_block(const Segment& segment, std::int64_t head, const Steps& steps,
                        Range block) {
  const Segment one = of_head(segment, head);
  const Problem& problem = *segment.problem;
  const KvView& kv = segment.arguments->kv;
  const Scratch& scratch = one.scratch;
  const std::int64_t out_floats = padded_floats(problem.v_head_dim);
  const Range keys = intersect(segment.keys, block);
  const Range lanes{keys.begin - block.begin, keys.end - block.begin};
  BlockRows& rows = *scratch.rows;
  const std::int64_t known = find_rows(one, block.begin, lanes, rows);

  ScoreArgs to_score{};
  to_score.k = rows.k;
  to_score.begin = lanes.begin / kLaneGroup * kLaneGroup;
  to_score.end = ceil_div(lanes.end, kLaneGroup) * kLaneGroup;
  to_score.q = scratch.q;
  to_score.q_bytes = padded_floats(problem.head_dim) * 4;
  to_score.dim = problem.head_dim;
  to_score.scores = scratch.scores;
  to_score.stream = stream_of(segment, head, kv.k, rows.k, known);
  steps.score(to_score, segment.rows.size());

  AccumulateArgs to_add{};
  to_add.stream = stream_of(segment, head, kv.v, rows.v, known);
  if (keys.begin == segment.keys.begin) to_add.stream.start(lanes.begin);
  const bool masked = weigh(one, steps, block.begin, lanes, out_floats);
  to_add.v = rows.v;
  to_add.begin = lanes.begin;
  to_add.end = lanes.end;
  to_add.weights = scratch.scores;
  to_add.bf16_weights = scratch.weights;
  to_add.zero_row = scratch.zero_row;
  to_add.dim = problem.v_head_dim;
  to_add.out = scratch.out;
  to_add.out_floats = out_floats;
  steps.accumulate(to_add, segment.rows.size(), masked);
}

HWY_ATTR void run_segment(const Segment& segment) {
  const Steps steps = steps_for(*segment.problem);
  const std::int64_t block = segment.num_heads == 1 ? kBlock : kSharedBlock;
  for (std::int64_t head = 0; head < segment.num_heads; ++head) {
    start_head(of_head(segment, head), steps);
  }
  for (std::int64_t key = segment.keys.begin / block * block; key < segment.keys.end;
       key += block) {
    for (std::int64_t head = 0; head < segment.num_heads; ++head) {
      run_block(segment, head, steps, {key, key + block});
    }
  }
  for (std::int64_t head = 0; head < segment.num_heads; ++head) {
    finish_head(of_head(segment, head), steps);
  }
}

const LeanTileCode* lean_tile_code() {
  static constexpr LeanTileCode kCode{run_segment};
  return &kCode;
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
