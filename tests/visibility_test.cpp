// visible_keys against a loop over `sees`.
#include "leanattn/visibility.h"

#include <gtest/gtest.h>

#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn {
namespace {

using testing::RandomBits;
using testing::scaled;

TEST(VisibleKeys, AreTheSmallestRangeWithEveryKeyThatAQuerySees) {
  for (std::int64_t seed = 0; seed < scaled(50'000); ++seed) {
    RandomBits bits(static_cast<std::uint64_t>(seed));
    const std::int64_t n = bits.between(0, 40);
    const std::int64_t m = bits.between(1, 12);
    Window window;
    window.causal = bits.chance(0.5);
    if (bits.chance(0.5)) window.left = bits.between(0, n + 2);
    if (bits.chance(0.5)) window.right = bits.between(0, n + 2);
    const std::int64_t first_row = bits.between(0, m - 1);
    const std::int64_t first = n - m + first_row;
    const std::int64_t last = n - m + bits.between(first_row, m - 1);

    const Range visible = visible_keys(window, first, last, n);
    ASSERT_GE(visible.begin, 0);
    ASSERT_LE(visible.end, n);
    ASSERT_LE(visible.begin, visible.end);
    for (std::int64_t j = 0; j < n; ++j) {
      bool seen = false;
      for (std::int64_t p = first; p <= last; ++p) seen = seen || sees(window, p, j);
      const bool inside = j >= visible.begin && j < visible.end;
      ASSERT_EQ(inside, seen) << "seed " << seed << ", key " << j << " of " << n << ", positions "
                              << first << " to " << last;
    }
  }
}

TEST(VisibleKeys, AlignCausalQueriesToTheLastKey) {
  const Window causal{true, -1, -1};
  EXPECT_EQ(visible_keys<std::int64_t>(causal, 2, 2, 4), (Range{0, 3}));
  EXPECT_EQ(visible_keys<std::int64_t>(causal, 3, 3, 4), (Range{0, 4}));
  EXPECT_TRUE(visible_keys<std::int64_t>(causal, -2, -1, 4).empty());  // more queries than keys
}

TEST(VisibleKeys, CountBothEndsOfAWindow) {
  EXPECT_EQ(visible_keys<std::int64_t>({false, 2, -1}, 4, 4, 5), (Range{2, 5}));
  EXPECT_EQ(visible_keys<std::int64_t>({false, 0, 0}, 3, 3, 9), (Range{3, 4}));
  EXPECT_EQ(visible_keys<std::int64_t>({false, -1, 1}, 3, 3, 9), (Range{0, 5}));
}

TEST(VisibleKeys, StayExactIn64Bits) {
  const std::int64_t n = std::int64_t{1} << 40;
  EXPECT_EQ(visible_keys({true, 4095, -1}, n - 1, n - 1, n), (Range{n - 4096, n}));
}

}  // namespace
}  // namespace leanattn
