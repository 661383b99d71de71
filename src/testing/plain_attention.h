// What a plain implementation computes and what it may lose: the yardstick of the
// tolerances.
#pragma once

#include <vector>

#include "testing/random_case.h"

namespace leanattn::testing {

/// One call's answer, packed: out [query, head, v_head_dim], lse [query, head].
struct Result {
  std::vector<float> out;
  std::vector<float> lse;
};

/// The answer in f32, one row at a time, and the first-order error of each number.
///
/// With u(T) the unit roundoff of T (f32 2^-24, f16 2^-11, bf16 2^-8), the error
/// of a row's scores is of the order of
///   δ = u(f32)·(|scale|·‖q‖·max‖k‖ + max|s| + softcap)   over its visible keys
/// and its sink,
/// and with M = Σ p·|v| / Σ p for each element of the output,
///   unit(out) = u(out)·|out| + (u(V) + 2δ)·M,   unit(lse) = δ + u(f32)·(2 + 2|lse|):
/// scores in f32, P rounded to V's type as a matrix unit wants it, sums in f32, the
/// output rounded once; the logarithm rounded in base 2 and again as a natural one, of a
/// sum of exponentials that are good to 2 ulp, as those of math libraries and GPUs are.
/// Below the normal range of f16, u(out)·|out| is 2^-25. A weight that a sink pushes below
/// 2^-126, the normal range of f32, may be lost: unit(out) grows by 2^-126·Σ p·|v| / Σ p with
/// p relative to the largest score of a key. Where V is f16, a weight p below 2^-14 is rounded
/// to a multiple of 2^-24: unit(out) grows by 2^-25·Σ |v| / Σ p over the keys of such weights.
struct PlainResult {
  Result result;
  std::vector<float> out_unit;
  std::vector<float> lse_unit;
};

[[nodiscard]] PlainResult plain_attention(const Case& problem);

}  // namespace leanattn::testing
