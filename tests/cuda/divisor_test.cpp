// Division by multiplication and shift is division. Needs no GPU.
#include "cuda/divisor.h"

#include <gtest/gtest.h>

#include <limits>

#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn::cuda {
namespace {

using testing::RandomBits;
using testing::scaled;

constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();

void expect_exact(std::int32_t dividend, std::int32_t value) {
  const Divisor divisor(value);
  ASSERT_EQ(dividend / divisor, dividend / value) << dividend << " / " << value;
  ASSERT_EQ(dividend % divisor, dividend % value) << dividend << " % " << value;
}

TEST(Divisors, DivideExactlyAtTheEdges) {
  for (const std::int32_t value : {1, 2, 3, 5, 7, 16, 71, 132, 544, 65'535, 65'536, 65'537,
                                   (1 << 30) - 1, 1 << 30, (1 << 30) + 1, kMost - 1, kMost}) {
    EXPECT_EQ(Divisor(value).value(), value);
    for (const std::int32_t dividend : {0, 1, value - 1, value, kMost - 1, kMost}) {
      expect_exact(dividend, value);
    }
    const std::int32_t last = kMost / value * value;  // the largest multiple
    expect_exact(last, value);
    expect_exact(last - 1, value);
  }
}

TEST(Divisors, DivideExactlyAtRandom) {
  for (std::int64_t seed = 0; seed < scaled(200'000); ++seed) {
    RandomBits bits(static_cast<std::uint64_t>(seed));
    const auto value = static_cast<std::int32_t>(bits.log_between(1, kMost));
    const auto quotient = static_cast<std::int32_t>(bits.between(0, kMost / value));
    expect_exact(quotient * value, value);
    if (quotient > 0) expect_exact(quotient * value - 1, value);
    expect_exact(static_cast<std::int32_t>(bits.between(0, kMost)), value);
  }
}

}  // namespace
}  // namespace leanattn::cuda
