// Reference, tolerance and the search for the worst element.
#include "testing/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "leanattn/attention.h"
#include "leanattn/half.h"

namespace leanattn::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Units between two numbers; infinite if one is NaN or infinite and the other is not the same.
double distance(float exact, float got, float unit) {
  if (exact == got || (std::isnan(exact) && std::isnan(got))) return 0;
  if (!std::isfinite(exact) || !std::isfinite(got)) return kInfinity;
  return std::fabs(static_cast<double>(got) - static_cast<double>(exact)) /
         static_cast<double>(unit);
}

// The output as it would be stored: where that is infinite or NaN, `exact` is too.
float storable(float exact, ElementType type) {
  float stored = 0;
  store_float(&stored, type, 0, exact);
  const float value = load_float(&stored, type, 0);
  return std::isfinite(value) ? exact : value;
}

double cosine_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double aa = 0;
  double bb = 0;
  double ab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i];
    const double y = b[i];
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    aa += x * x;
    bb += y * y;
    ab += x * y;
  }
  return aa == 0 && bb == 0 ? 0 : 1 - ab / std::sqrt(std::max(aa * bb, 1e-300));
}

std::string coordinates(const Case& problem, std::size_t row) {
  const auto heads = static_cast<std::size_t>(problem.spec.num_q_heads());
  const auto query = static_cast<std::int64_t>(row / heads);
  const auto& first = problem.first_query;
  const auto b = std::upper_bound(first.begin(), first.end(), query) - first.begin() - 1;
  return concat("sequence ", b, ", query ", query - first[static_cast<std::size_t>(b)], ", head ",
                row % heads);
}

}  // namespace

Expected expect(const Case& problem) {
  const CaseSpec& spec = problem.spec;
  const std::int64_t rows = spec.num_queries() * spec.num_q_heads();
  Expected expected;
  expected.exact.out.resize(static_cast<std::size_t>(rows * spec.v_head_dim));
  expected.exact.lse.resize(static_cast<std::size_t>(rows));

  Arguments arguments = problem.arguments;
  const auto& shape = arguments.out.shape;
  float spare = 0;  // views need a pointer, also where there is nothing
  float* out = rows > 0 ? expected.exact.out.data() : &spare;
  float* lse = rows > 0 ? expected.exact.lse.data() : &spare;
  arguments.out = contiguous<4, void*>(out, ElementType::kFloat32, shape);
  arguments.lse = contiguous<3, void*>(lse, ElementType::kFloat32, {shape[0], shape[1], shape[2]});
  reference(arguments, problem.rules());

  PlainResult plain = plain_attention(problem);
  expected.out_unit = std::move(plain.out_unit);
  expected.lse_unit = std::move(plain.lse_unit);
  for (std::size_t i = 0; i < expected.exact.out.size(); ++i) {
    float& exact = expected.exact.out[i];
    exact = storable(exact, spec.out_type);
    const double units = distance(exact, plain.result.out[i], expected.out_unit[i]);
    expected.plain_units = std::max(expected.plain_units, units);
  }
  for (std::size_t i = 0; i < expected.exact.lse.size(); ++i) {
    const double units = distance(expected.exact.lse[i], plain.result.lse[i], expected.lse_unit[i]);
    expected.plain_units = std::max(expected.plain_units, units);
  }
  return expected;
}

Result read_output(const Case& problem) {
  const CaseSpec& spec = problem.spec;
  const MutableTensorView<4>& out = problem.arguments.out;
  const MutableTensorView<3>& lse = problem.arguments.lse;
  Result result;
  for (std::int64_t b = 0; b < out.shape[0]; ++b) {
    for (std::int64_t i = 0; i < out.shape[1]; ++i) {
      for (std::int64_t h = 0; h < out.shape[2]; ++h) {
        for (std::int64_t d = 0; d < spec.v_head_dim; ++d) {
          result.out.push_back(load_float(out.data, out.type, out.offset(b, i, h, d)));
        }
        if (!lse.given()) continue;
        result.lse.push_back(load_float(lse.data, ElementType::kFloat32, lse.offset(b, i, h)));
      }
    }
  }
  return result;
}

Comparison compare(const Case& problem, const Expected& expected, const Result& got) {
  Comparison comparison;
  comparison.allowed = 2 * expected.plain_units;
  comparison.units = -1;
  const auto look_at = [&](float exact, float value, float unit, auto name) {
    const double units = distance(exact, value, unit);
    if (units <= comparison.units) return;
    comparison.units = units;
    comparison.worst = concat(name(), ": got ", value, ", expected ", exact, ", ", units,
                              " units of ", unit, ", allowed ", comparison.allowed);
  };
  const auto dim = static_cast<std::size_t>(problem.spec.v_head_dim);
  for (std::size_t i = 0; i < got.out.size(); ++i) {
    const bool empty = expected.exact.lse[i / dim] == -std::numeric_limits<float>::infinity();
    look_at(empty ? 0.0f : expected.exact.out[i], got.out[i],
            empty ? std::numeric_limits<float>::denorm_min() : expected.out_unit[i],
            [&] { return concat("out at ", coordinates(problem, i / dim), ", dim ", i % dim); });
  }
  for (std::size_t i = 0; i < got.lse.size(); ++i) {
    look_at(expected.exact.lse[i], got.lse[i], expected.lse_unit[i],
            [&] { return concat("lse at ", coordinates(problem, i)); });
  }
  comparison.units = std::max(comparison.units, 0.0);
  comparison.cosine_difference = cosine_difference(expected.exact.out, got.out);
  if (!(expected.plain_units <= kMostPlainUnits)) {
    comparison.worst = concat("the plain implementation is ", expected.plain_units,
                              " units from the reference: one of them is wrong");
    comparison.passed = false;
    return comparison;
  }
  comparison.passed = comparison.units <= comparison.allowed;
  return comparison;
}

}  // namespace leanattn::testing
