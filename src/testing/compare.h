// Is an answer right? Every number may be off by twice what a plain implementation
// loses in the same case, measured in units of its own first-order error.
#pragma once

#include <string>
#include <vector>

#include "testing/plain_attention.h"
#include "testing/random_case.h"

namespace leanattn::testing {

/// What a case's answer must be.
struct Expected {
  Result exact;                 // the double-precision reference, stored as f32
  std::vector<float> out_unit;  // see PlainResult
  std::vector<float> lse_unit;
  double plain_units = 1;  // largest |plain − exact| / unit of the case, at least 1
};

/// How far an answer is from what is expected.
struct Comparison {
  bool passed = true;
  double units = 0;              // largest |got − exact| / unit
  double allowed = 2;            // units: twice those of the plain implementation
  double cosine_difference = 0;  // 1 − cos of the angle between the whole outputs
  std::string worst;             // the element that is `units` away, with its coordinates
};

/// A plain implementation that is further from the reference than this many units
/// of first-order error says that one of the two is wrong; nothing passes then.
inline constexpr double kMostPlainUnits = 32;

/// Computes reference and tolerances.
[[nodiscard]] Expected expect(const Case& problem);

/// The answer that now stands in the case's `out` and `lse`. Without lse in the
/// case, lse is empty.
[[nodiscard]] Result read_output(const Case& problem);

/// `got` against `expected`: an empty row (lse −∞) must match exactly, a NaN must
/// be a NaN, everything else stay within `allowed` units.
[[nodiscard]] Comparison compare(const Case& problem, const Expected& expected, const Result& got);

}  // namespace leanattn::testing
