// The softmax of one row as a mergeable state (LeanAttention, arXiv 2405.10480,
// section "softmax re-scaling as reduction").
//
// A state (max, sum, O) stands for keys seen so far: max is their largest score,
// sum = Σ 2^(s − max), O = Σ 2^(s − max)·v. Scores are in base 2: s·log2(e) of
// the natural score. Merging is associative, with identity (−∞, 0, 0). O lives
// with the caller; `merge` returns the two factors that the caller's loop over O
// applies. Included by host and device code; includes nothing of the project.
#pragma once

#include <cmath>
#include <limits>

#ifndef LEANATTN_HOST_DEVICE
#ifdef __CUDACC__
#define LEANATTN_HOST_DEVICE __host__ __device__
#else
#define LEANATTN_HOST_DEVICE
#endif
#endif

namespace leanattn {

inline constexpr float kLog2E = 1.44269504088896340736f;
inline constexpr float kLn2 = 0.693147180559945309417f;

/// 2^x. On a GPU as its instruction has it: to 2 ulp, and 0 below 2^-126.
[[nodiscard]] LEANATTN_HOST_DEVICE inline float exp2_of(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;

  /// No key seen, or none that weighs anything.
  [[nodiscard]] LEANATTN_HOST_DEVICE bool empty() const {
    return max == -std::numeric_limits<float>::infinity();
  }
};

/// O = left·O_left + right·O_right. A factor of 0 says "do not read that O": an
/// empty state's O may never have been written.
struct MergeScales {
  float left;
  float right;
};

/// left ← left ∘ right. Merging with an empty state keeps the other bit for bit.
LEANATTN_HOST_DEVICE inline MergeScales merge(SoftmaxState& left, const SoftmaxState& right) {
  if (right.empty()) return {1.0f, 0.0f};
  if (left.empty()) {
    left = right;
    return {0.0f, 1.0f};
  }
  const float max = left.max > right.max ? left.max : right.max;
  const MergeScales scales{exp2_of(left.max - max), exp2_of(right.max - max)};
  left.sum = left.sum * scales.left + right.sum * scales.right;
  left.max = max;
  return scales;
}

/// Merges all of `states` at once; scales[i] is the factor of O_i, which must be 0 where the
/// state is empty. A state alone among empty ones keeps its bits.
template <int kCount>
LEANATTN_HOST_DEVICE inline SoftmaxState merge_all(const SoftmaxState (&states)[kCount],
                                                   float (&scales)[kCount]) {
  SoftmaxState merged;
  for (int i = 0; i < kCount; ++i) merged.max = fmaxf(merged.max, states[i].max);
  // Without any key all scales are 2^−∞; −∞ − (−∞) would be none.
  const float max = merged.empty() ? 0.0f : merged.max;
  for (int i = 0; i < kCount; ++i) {
    scales[i] = exp2_of(states[i].max - max);
    merged.sum += states[i].sum * scales[i];
  }
  return merged;
}

/// Adds exp(sink) to the denominator: a key with that (natural) score and value
/// 0. Returns the factor for O.
LEANATTN_HOST_DEVICE inline float add_sink(SoftmaxState& state, float sink) {
  const SoftmaxState key{sink * kLog2E, 1.0f};
  return merge(state, key).left;
}

/// The factor that turns O into the output: 1/sum, and 0 where nothing was seen.
[[nodiscard]] LEANATTN_HOST_DEVICE inline float normaliser(const SoftmaxState& state) {
  return state.empty() ? 0.0f : 1.0f / state.sum;
}

/// Natural log of the denominator; −∞ where nothing was seen.
[[nodiscard]] LEANATTN_HOST_DEVICE inline float lse_of(const SoftmaxState& state) {
  return state.empty() ? state.max : (state.max + log2f(state.sum)) * kLn2;
}

/// The state of a finished (out, lse): out is its O. An lse of +∞, which some
/// libraries write for "no keys", reads as empty.
[[nodiscard]] LEANATTN_HOST_DEVICE inline SoftmaxState state_of_lse(float lse) {
  const float infinity = std::numeric_limits<float>::infinity();
  if (lse == infinity || lse == -infinity) return {};
  return {lse * kLog2E, 1.0f};
}

}  // namespace leanattn
