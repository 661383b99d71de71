// float16 and bfloat16: every pattern survives a round trip, and floats between two
// patterns round to the nearest, ties to even.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "leanattn/half.h"

namespace leanattn {
namespace {

struct Format {
  const char* name;
  ElementType type;
  float (*to_float)(std::uint16_t);
  std::uint16_t (*of_float)(float);
  std::uint16_t infinity;  // bits; above it, without the sign, are NaNs
  std::uint16_t quiet;     // the bit that makes a NaN quiet
};

class CoreHalf : public testing::TestWithParam<Format> {};

TEST_P(CoreHalf, EveryPatternSurvivesARoundTrip) {
  const Format& format = GetParam();
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<std::uint16_t>(i);
    const float value = format.to_float(bits);
    const bool is_nan = (bits & 0x7fff) > format.infinity;
    ASSERT_EQ(std::isnan(value), is_nan) << "bits " << i;
    const std::uint16_t back = format.of_float(value);
    if (is_nan) {
      ASSERT_GT(back & 0x7fff, format.infinity) << "bits " << i;
      ASSERT_EQ(back & 0x8000, bits & 0x8000) << "bits " << i;
    } else {
      ASSERT_EQ(back, bits) << "bits " << i;
    }
  }
}

TEST_P(CoreHalf, BetweenTwoPatternsRoundsToTheNearestTiesToEven) {
  const Format& format = GetParam();
  for (std::uint32_t i = 0; i + 1 < format.infinity; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    // Exact: a float has at least 8 bits more than either format.
    const double middle =
        (static_cast<double>(format.to_float(low)) + static_cast<double>(format.to_float(high))) /
        2;
    const auto tie = static_cast<float>(middle);
    if (static_cast<double>(tie) != middle) continue;  // below the least float
    const std::uint16_t even = (low & 1u) == 0 ? low : high;
    ASSERT_EQ(format.of_float(tie), even) << "bits " << i;
    ASSERT_EQ(format.of_float(-tie), even | 0x8000) << "bits " << i;
    ASSERT_EQ(format.of_float(std::nextafter(tie, 0.0f)), low) << "bits " << i;
    ASSERT_EQ(format.of_float(std::nextafter(tie, std::numeric_limits<float>::infinity())), high)
        << "bits " << i;
  }
}

TEST_P(CoreHalf, WhatIsTooLargeBecomesInfinite) {
  const Format& format = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(format.of_float(infinity), format.infinity);
  EXPECT_EQ(format.of_float(-infinity), format.infinity | 0x8000);
  EXPECT_EQ(format.of_float(std::numeric_limits<float>::max()), format.infinity);
}

TEST_P(CoreHalf, ANaNThatWouldLoseItsPayloadStaysOne) {
  const Format& format = GetParam();
  for (const std::uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0x7fffffffu}) {
    const std::uint16_t half = format.of_float(std::bit_cast<float>(bits));
    EXPECT_GT(half & 0x7fff, format.infinity) << "bits " << bits;
    EXPECT_NE(half & format.quiet, 0) << "bits " << bits;
  }
}

TEST_P(CoreHalf, LoadsAndStoresByType) {
  const Format& format = GetParam();
  std::vector<std::uint16_t> data(4, 0);
  store_float(data.data(), format.type, 1, -1.5f);
  EXPECT_EQ(data[0], 0);
  EXPECT_EQ(data[1], format.of_float(-1.5f));
  EXPECT_EQ(data[2], 0);
  EXPECT_EQ(load_float(data.data(), format.type, 1), -1.5f);
}

INSTANTIATE_TEST_SUITE_P(Formats, CoreHalf,
                         testing::Values(Format{"f16", ElementType::kFloat16, float_of_float16,
                                                float16_of_float, 0x7c00, 0x0200},
                                         Format{"bf16", ElementType::kBFloat16, float_of_bfloat16,
                                                bfloat16_of_float, 0x7f80, 0x0040}),
                         [](const auto& format) { return std::string(format.param.name); });

TEST(CoreHalfValues, KnownFloat16) {
  EXPECT_EQ(float_of_float16(0x3c00), 1.0f);
  EXPECT_EQ(float_of_float16(0x0001), 0x1p-24f);
  EXPECT_EQ(float_of_float16(0x7bff), 65504.0f);
  EXPECT_EQ(float16_of_float(65519.996f), 0x7bff);
  EXPECT_EQ(float16_of_float(65520.0f), 0x7c00);
  EXPECT_EQ(float16_of_float(0x1p-25f), 0x0000);
  EXPECT_EQ(float16_of_float(0x1.000002p-25f), 0x0001);
}

}  // namespace
}  // namespace leanattn
