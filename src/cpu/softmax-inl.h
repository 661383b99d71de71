// From scores to weights: the rules of a call, then one online-softmax step per
// row and block, in base 2; per target.
#if defined(LEANATTN_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LEANATTN_CPU_SOFTMAX_INL_H_
#undef LEANATTN_CPU_SOFTMAX_INL_H_
#else
#define LEANATTN_CPU_SOFTMAX_INL_H_
#endif

#include <cmath>
#include <limits>

#include "cpu/accumulate-inl.h"
#include "cpu/rules.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace leanattn::cpu {
namespace {
namespace HWY_NAMESPACE {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// 2^x for x ≤ 0: relative error below 2^-22; 0 below −125, NaN for NaN.
/// 2^x = 2^n·2^f with n = round(x); 2^f on [−½, ½] is the Taylor polynomial of
/// e^(f·ln 2) of degree 7, whose remainder there is below 2^-27.
HWY_INLINE HWY_ATTR V exp2_not_above_one(V x) {
  const hn::RebindToSigned<D> di;
  const V clamped = hn::Max(x, hn::Set(d, -127.0f));
  const auto n = hn::NearestInt(clamped);
  const V f = hn::Sub(clamped, hn::ConvertTo(d, n));
  V p = hn::Set(d, 1.52527338e-5f);
  p = hn::MulAdd(p, f, hn::Set(d, 1.54035304e-4f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.33335581e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 9.61812911e-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 5.55041087e-2f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.40226507e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 6.93147181e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const V power = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(n)));
  const V value = hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -125.0f)), power);
  return hn::IfThenElse(hn::IsNaN(x), x, value);
}

HWY_INLINE HWY_ATTR V soft_capped(V s, float cap) {
  const V capped = hn::Mul(hn::Set(d, cap), hn::Tanh(d, hn::Mul(s, hn::Set(d, 1.0f / cap))));
  return hn::IfThenElse(hn::IsNaN(s), s, capped);
}

/// Applies scale, softcap, ALiBi, bias and tree mask to one row's scores of the
/// block that begins at key `first_key`; hidden keys become −∞. `lanes` are whole
/// vectors around `visible`. Returns whether bias or tree hid any visible lane.
HWY_ATTR bool apply_rules(const Segment& segment, const RowRules& row, std::int64_t first_key,
                          Range lanes, Range visible, float* scores) {
  const ScoreRules& rules = segment.problem->rules;
  const V scale = hn::Set(d, segment.scale);
  for (std::int64_t j = lanes.begin; j < lanes.end; j += kLanes) {
    V s = hn::Mul(hn::Load(d, scores + j), scale);
    if (rules.softcap > 0) s = soft_capped(s, rules.softcap);
    hn::Store(s, d, scores + j);
  }
  if (segment.problem->has_alibi) {
    for (std::int64_t j = visible.begin; j < visible.end; ++j) {
      scores[j] -= row.alibi_slope * static_cast<float>(row.position - (first_key + j));
    }
  }
  bool hid = false;
  if (segment.problem->has_bias) hid |= add_bias(segment, row, first_key, visible, scores);
  if (segment.problem->has_tree_mask) hid |= hide_by_tree(segment, row, first_key, visible, scores);
  return hid;
}

/// One online-softmax step of one row. Scores in `lanes`, which are whole vectors,
/// become weights; those outside `visible`, and those at −∞, weigh nothing: 0, or
/// kHidden if `masked`.
/// `to_base2` turns scores into base-2 scores. O is rescaled if the maximum grew.
HWY_ATTR void softmax_step(float* scores, Range lanes, Range visible, float to_base2, bool masked,
                           float& max, float& sum, float* out, std::int64_t out_floats) {
  const V factor = hn::Set(d, to_base2);
  const V minus_infinity = hn::Set(d, -kInfinity);
  const V first = hn::Set(d, static_cast<float>(visible.begin));
  const V end = hn::Set(d, static_cast<float>(visible.end));
  V block_max = minus_infinity;
  for (std::int64_t j = lanes.begin; j < lanes.end; j += kLanes) {
    const V lane = hn::Iota(d, static_cast<float>(j));
    const auto inside = hn::And(hn::Ge(lane, first), hn::Lt(lane, end));
    const V s = hn::IfThenElse(inside, hn::Mul(hn::Load(d, scores + j), factor), minus_infinity);
    hn::Store(s, d, scores + j);
    block_max = hn::Max(block_max, s);
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, block_max));
  const float before = max;
  const float now = largest > before ? largest : before;
  const V hidden_weight = hn::Set(d, masked ? kHidden : 0.0f);
  // A maximum of −∞ has no keys to weigh; subtracting it would make NaN of −∞.
  const V reference = hn::Set(d, now == -kInfinity ? 0.0f : now);
  V weight_sum = hn::Zero(d);
  for (std::int64_t j = lanes.begin; j < lanes.end; j += kLanes) {
    const V s = hn::Load(d, scores + j);
    const auto hidden = hn::Eq(s, minus_infinity);
    const V weight = exp2_not_above_one(hn::Sub(s, reference));
    weight_sum = hn::Add(weight_sum, hn::IfThenZeroElse(hidden, weight));
    hn::Store(hn::IfThenElse(hidden, hidden_weight, weight), d, scores + j);
  }
  const float block_sum = hn::GetLane(hn::SumOfLanes(d, weight_sum));
  if (now != before && before != -kInfinity) {
    const float rescale = std::exp2(before - now);
    sum *= rescale;
    const V by = hn::Set(d, rescale);
    for (std::int64_t i = 0; i < out_floats; i += kLanes) {
      hn::Store(hn::Mul(hn::Load(d, out + i), by), d, out + i);
    }
  }
  // Scores of NaN raise no maximum; their row must not pass for empty.
  max = now == -kInfinity && block_sum != 0.0f ? 0.0f : now;
  sum += block_sum;
}

#if LEANATTN_BF16_PRODUCTS
/// Weights as bf16, hidden ones as 0.
HWY_INLINE HWY_ATTR void round_weights(const float* weights, Range lanes, std::uint16_t* rounded) {
  for (std::int64_t j = lanes.begin / kPair * kPair; j < lanes.end; j += kPair) {
    const __m512 zero = _mm512_setzero_ps();
    const __m512 low = _mm512_max_ps(zero, _mm512_load_ps(weights + j));
    const __m512 high = _mm512_max_ps(zero, _mm512_load_ps(weights + j + kLanes));
    _mm512_store_si512(rounded + j, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
