// Is an answer right? Tolerances from the first-order error of a plain
// implementation, and the search for the worst element.
//
// With u(T) the unit roundoff of T (f32 2^-24, f16 2^-11, bf16 2^-8), scores kept
// in f32, P rounded to V's type and the output rounded once, a row may lose
//   δ         = u(f32)·(2·|scale|·‖q‖·max‖k‖ + softcap + max|ALiBi| + max|bias|)
//   error out = u(out)·|out| + (u(V) + 2δ)·M     M = Σ p·|v| / Σ p
//   error lse = δ + u(f32)·(1 + |lse|)
// A comparison allows twice that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leanattn/problem.h"

namespace leanattn::tools {

/// Numbers of one call, row-major: out [b, m, H, dv], lse [b, m, H].
struct Answer {
  std::vector<double> out;
  std::vector<double> lse;
};

/// What now stands in `out` and `lse` of `arguments`.
[[nodiscard]] Answer read_answer(const Arguments& arguments);

/// The double-precision reference.
[[nodiscard]] Answer exact_answer(const Arguments& arguments, const ScoreRules& rules);

/// M of every output: the reference over |v|.
[[nodiscard]] std::vector<double> mean_magnitudes(const Arguments& arguments,
                                                  const ScoreRules& rules);

/// The largest ‖k‖ among the keys within the lengths; NaN and Inf aside.
[[nodiscard]] double largest_key_norm(const Arguments& arguments);

/// How far `got` may be from `wanted`, as described above, per number.
/// `magnitudes` has M of every output, or one number that bounds all.
[[nodiscard]] Answer tolerance_of(const Arguments& arguments, const ScoreRules& rules,
                                  const Answer& wanted, ElementType wanted_type, double key_norm,
                                  const std::vector<double>& magnitudes);

/// How two answers differ.
struct Difference {
  bool within = true;
  double share = 0;              // largest |got − wanted| / tolerance
  double cosine_difference = 0;  // 1 − cos of the angle between the whole outputs
  std::string worst;             // that element: coordinates, both values, tolerance
};

/// Compares `out`, and `lse` where `wanted` has one. A NaN must be a NaN.
[[nodiscard]] Difference compare(const Arguments& arguments, const Answer& got,
                                 const Answer& wanted, const Answer& tolerance);

}  // namespace leanattn::tools
