// Merging finished results: the identity keeps every bit, empty states never leak
// what lies in their memory, and closed-form answers come out.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "core_helpers.h"
#include "leanattn/attention.h"
#include "leanattn/half.h"

namespace leanattn {
namespace {

using testing_core::kInfinity;
using testing_core::kNaN;
using testing_core::sentence_of;

constexpr auto kF32 = ElementType::kFloat32;

/// `rows` results of one head, with memory of their own, in any floating type.
struct Results {
  ElementType type;
  std::int64_t rows, dim;
  std::vector<std::byte> out;
  std::vector<float> lse;

  Results(ElementType element, std::int64_t num_rows, std::int64_t size, float value, float log_sum)
      : type(element),
        rows(num_rows),
        dim(size),
        out(static_cast<std::size_t>(num_rows * size * size_of(element))),
        lse(static_cast<std::size_t>(num_rows), log_sum) {
    for (std::int64_t i = 0; i < rows * dim; ++i) store_float(out.data(), type, i, value);
  }

  [[nodiscard]] float at(std::int64_t i) const { return load_float(out.data(), type, i); }
  MutableTensorView<3> out_view() { return contiguous<3, void*>(out.data(), type, {rows, 1, dim}); }
  MutableTensorView<2> lse_view() { return contiguous<2, void*>(lse.data(), kF32, {rows, 1}); }
};

void merge_into(Results& a, Results& b, Results& into) {
  merge_states(as_const(a.out_view()), as_const(a.lse_view()), as_const(b.out_view()),
               as_const(b.lse_view()), into.out_view(), into.lse_view());
}

bool same_bits(const Results& a, const Results& b) {
  return a.type == b.type && a.out == b.out &&
         std::memcmp(a.lse.data(), b.lse.data(), a.lse.size() * sizeof(float)) == 0;
}

Results random_results(ElementType type, std::int64_t rows, std::int64_t dim, unsigned seed) {
  Results results(type, rows, dim, 0, 0);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < rows * dim; ++i) {
    store_float(results.out.data(), type, i, normal(random));
  }
  for (float& lse : results.lse) lse = 20.0f * normal(random);
  return results;
}

class CoreMerge : public testing::TestWithParam<ElementType> {};

TEST_P(CoreMerge, AnEmptyStateChangesNoBit) {
  // 300 elements are more than are summed at a time.
  for (const float empty_lse : {-kInfinity, kInfinity}) {
    Results x = random_results(GetParam(), 50, 300, 1);
    Results empty(GetParam(), 50, 300, kNaN, empty_lse);
    Results left(GetParam(), 50, 300, kNaN, kNaN);
    Results right = left;
    merge_into(x, empty, left);
    merge_into(empty, x, right);
    EXPECT_TRUE(same_bits(left, x));
    EXPECT_TRUE(same_bits(right, x));

    Results in_place = x;
    merge_into(in_place, empty, in_place);
    EXPECT_TRUE(same_bits(in_place, x));
    Results over_empty = empty;
    merge_into(over_empty, x, over_empty);
    EXPECT_TRUE(same_bits(over_empty, x));
  }
}

TEST_P(CoreMerge, EmptyWithEmptyIsEmpty) {
  for (const float lse_a : {-kInfinity, kInfinity}) {
    for (const float lse_b : {-kInfinity, kInfinity}) {
      Results a(GetParam(), 2, 3, kNaN, lse_a);
      Results b(GetParam(), 2, 3, kNaN, lse_b);
      merge_into(a, b, a);
      for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(a.at(i), 0.0f);
      EXPECT_EQ(a.lse[0], -kInfinity);
      EXPECT_EQ(a.lse[1], -kInfinity);
    }
  }
}

TEST_P(CoreMerge, InPlaceGivesTheBitsOfApart) {
  Results a = random_results(GetParam(), 40, 300, 2);
  Results b = random_results(GetParam(), 40, 300, 3);
  Results apart(GetParam(), 40, 300, kNaN, kNaN);
  merge_into(a, b, apart);
  Results into_a = a;
  merge_into(into_a, b, into_a);
  EXPECT_TRUE(same_bits(into_a, apart));
  Results into_b = b;
  merge_into(a, into_b, into_b);
  EXPECT_TRUE(same_bits(into_b, apart));
}

TEST_P(CoreMerge, AgreesWithTheDefinition) {
  Results a = random_results(GetParam(), 40, 5, 4);
  Results b = random_results(GetParam(), 40, 5, 5);
  Results merged(kF32, 40, 5, kNaN, kNaN);
  merge_into(a, b, merged);
  for (std::int64_t row = 0; row < 40; ++row) {
    const auto i = static_cast<std::size_t>(row);
    const double max = std::max(a.lse[i], b.lse[i]);
    const double weight_a = std::exp(a.lse[i] - max);
    const double weight_b = std::exp(b.lse[i] - max);
    EXPECT_NEAR(merged.lse[i], max + std::log(weight_a + weight_b), 1e-5);
    for (std::int64_t d = 0; d < 5; ++d) {
      const double right =
          (weight_a * a.at(row * 5 + d) + weight_b * b.at(row * 5 + d)) / (weight_a + weight_b);
      EXPECT_NEAR(merged.at(row * 5 + d), right, 2e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CoreMerge,
                         testing::Values(ElementType::kFloat32, ElementType::kFloat16,
                                         ElementType::kBFloat16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(CoreMergeAnswers, AResultWithoutKeysIsNeverRead) {
  Results none(kF32, 1, 4, kNaN, -kInfinity);
  Results five(kF32, 1, 4, 5.0f, 0.0f);
  merge_into(none, five, none);
  EXPECT_EQ(none.at(0), 5.0f);
  EXPECT_EQ(none.lse[0], 0.0f);
}

TEST(CoreMergeAnswers, LogarithmsAreNatural) {
  Results prefix(kF32, 1, 4, 0.0f, std::log(3072.0f));
  Results suffix(kF32, 1, 4, 1.0f, std::log(64.0f));
  merge_into(prefix, suffix, prefix);
  EXPECT_NEAR(prefix.at(0), 64.0 / 3136.0, 1e-7);
  EXPECT_NEAR(prefix.lse[0], std::log(3136.0), 1e-6);
}

TEST(CoreMergeAnswers, NaNReachesItsRowAndNoOther) {
  Results a(kF32, 3, 2, 1.0f, 0.0f);
  Results b(kF32, 3, 2, 2.0f, 0.0f);
  store_float(a.out.data(), kF32, 2, kNaN);  // row 1
  b.lse[2] = kNaN;
  merge_into(a, b, a);
  EXPECT_EQ(a.at(0), 1.5f);
  EXPECT_TRUE(std::isnan(a.at(2)));
  EXPECT_EQ(a.at(3), 1.5f);
  EXPECT_NEAR(a.lse[1], std::log(2.0), 1e-6);
  EXPECT_TRUE(std::isnan(a.at(4)));
  EXPECT_TRUE(std::isnan(a.lse[2]));
}

TEST(CoreMergeAnswers, StridesAreHonoured) {
  // Inputs are [heads, rows, dim] in memory; the result leaves gaps between rows.
  std::vector<float> a(12), b(12), out(24, kNaN), lse_a(6, 0.0f), lse_b(6, 0.0f), lse(12, kNaN);
  for (std::size_t i = 0; i < 12; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(i + 2);
  }
  const TensorView<3> view_a{a.data(), kF32, {3, 2, 2}, {2, 6, 1}, {}};
  const TensorView<3> view_b{b.data(), kF32, {3, 2, 2}, {2, 6, 1}, {}};
  const TensorView<2> view_lse_a{lse_a.data(), kF32, {3, 2}, {1, 3}, {}};
  const TensorView<2> view_lse_b{lse_b.data(), kF32, {3, 2}, {1, 3}, {}};
  merge_states(view_a, view_lse_a, view_b, view_lse_b,
               MutableTensorView<3>{out.data(), kF32, {3, 2, 2}, {8, 4, 1}, {}},
               MutableTensorView<2>{lse.data(), kF32, {3, 2}, {4, 2}, {}});
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t head = 0; head < 2; ++head) {
      for (std::size_t d = 0; d < 2; ++d) {
        EXPECT_EQ(out[8 * row + 4 * head + d], static_cast<float>(2 * row + 6 * head + d + 1));
        EXPECT_TRUE(std::isnan(out[8 * row + 4 * head + d + 2]));
      }
      EXPECT_NEAR(lse[4 * row + 2 * head], std::log(2.0), 1e-6);
      EXPECT_TRUE(std::isnan(lse[4 * row + 2 * head + 1]));
    }
  }
}

/// outs [parts, 1, 1, 1] and lses [parts, 1, 1] merged.
std::pair<float, float> merge_all(const std::vector<float>& outs, const std::vector<float>& lses) {
  const auto parts = static_cast<std::int64_t>(outs.size());
  float out = kNaN;
  float lse = kNaN;
  merge_states(contiguous<4, const void*>(outs.data(), kF32, {parts, 1, 1, 1}),
               contiguous<3, const void*>(lses.data(), kF32, {parts, 1, 1}),
               contiguous<3, void*>(&out, kF32, {1, 1, 1}),
               contiguous<2, void*>(&lse, kF32, {1, 1}));
  return {out, lse};
}

TEST(CoreMergeMany, OneFilledPartKeepsItsBits) {
  const auto [out, lse] = merge_all({kNaN, 5.0f, kNaN}, {-kInfinity, 0.6931472f, kInfinity});
  EXPECT_EQ(out, 5.0f);
  EXPECT_EQ(lse, 0.6931472f);
}

TEST(CoreMergeMany, NothingFilledIsEmpty) {
  const auto [out, lse] = merge_all({kNaN, kNaN}, {-kInfinity, kInfinity});
  EXPECT_EQ(out, 0.0f);
  EXPECT_EQ(lse, -kInfinity);
  const auto [out_of_none, lse_of_none] = merge_all({}, {});
  EXPECT_EQ(out_of_none, 0.0f);
  EXPECT_EQ(lse_of_none, -kInfinity);
}

TEST(CoreMergeMany, AChunkWithoutKeysWeighsNothing) {
  const auto [out, lse] = merge_all({1.0f, kNaN}, {std::log(2.0f), -kInfinity});
  EXPECT_EQ(out, 1.0f);
  EXPECT_EQ(lse, std::log(2.0f));
}

TEST(CoreMergeMany, EqualPartsGiveTheirMean) {
  std::vector<float> outs(100), lses(100, 700.0f);  // exp(700) is no float
  for (std::size_t p = 0; p < 100; ++p) outs[p] = static_cast<float>(p);
  const auto [out, lse] = merge_all(outs, lses);
  EXPECT_NEAR(out, 49.5, 1e-5);
  EXPECT_NEAR(lse, 700.0 + std::log(100.0), 1e-4);
}

TEST(CoreMergeMany, TwoPartsAreTheBinaryMergeAlsoInPlace) {
  Results a = random_results(kF32, 7, 300, 6);
  Results b = random_results(kF32, 7, 300, 7);
  Results binary(kF32, 7, 300, kNaN, kNaN);
  merge_into(a, b, binary);
  std::vector<std::byte> outs(a.out);
  outs.insert(outs.end(), b.out.begin(), b.out.end());
  std::vector<float> lses(a.lse);
  lses.insert(lses.end(), b.lse.begin(), b.lse.end());
  merge_states(contiguous<4, const void*>(outs.data(), kF32, {2, 7, 1, 300}),
               contiguous<3, const void*>(lses.data(), kF32, {2, 7, 1}),
               contiguous<3, void*>(outs.data(), kF32, {7, 1, 300}),
               contiguous<2, void*>(lses.data(), kF32, {7, 1}));
  EXPECT_EQ(std::memcmp(outs.data(), binary.out.data(), binary.out.size()), 0);
  EXPECT_EQ(std::memcmp(lses.data(), binary.lse.data(), binary.lse.size() * 4), 0);
}

TEST(CoreMergeErrors, NameTheArgument) {
  Results a(kF32, 2, 4, 1.0f, 0.0f);
  Results b(kF32, 2, 3, 1.0f, 0.0f);
  Results out(kF32, 2, 4, 7.0f, 7.0f);
  const Results before = out;
  EXPECT_EQ(sentence_of([&] { merge_into(a, b, out); }),
            "out_b has shape [2, 1, 3]; it must be [2, 1, 4]");
  EXPECT_EQ(sentence_of<TypeMismatch>([&] {
              MutableTensorView<3> out_a = a.out_view();
              out_a.type = ElementType::kBool;
              merge_states(as_const(out_a), as_const(a.lse_view()), as_const(a.out_view()),
                           as_const(a.lse_view()), out.out_view(), out.lse_view());
            }),
            "out_a is bool; it must be f32, f16 or bf16");
  EXPECT_EQ(sentence_of<TypeMismatch>([&] {
              MutableTensorView<2> lse = a.lse_view();
              lse.device = {Device::Kind::kDevice, 1};
              merge_states(as_const(a.out_view()), as_const(lse), as_const(a.out_view()),
                           as_const(a.lse_view()), out.out_view(), out.lse_view());
            }),
            "lse_a lies in memory of device 1; it must lie in host memory");
  EXPECT_TRUE(same_bits(out, before));
}

TEST(CoreMergeErrors, NoRowsAreFine) {
  Results none(kF32, 0, 4, 0.0f, 0.0f);
  EXPECT_NO_THROW(merge_into(none, none, none));
}

}  // namespace
}  // namespace leanattn
