// The algebra of softmax states: many at once as one after the other, empty ones as none.
#include "leanattn/softmax_state.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn {
namespace {

using testing::RandomBits;
using testing::scaled;

constexpr int kStates = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// States and the O of one dimension.
struct Partials {
  SoftmaxState states[kStates];
  float out[kStates] = {};
};

Partials draw(RandomBits& bits) {
  Partials partials;
  for (int i = 0; i < kStates; ++i) {
    if (bits.chance(0.3)) continue;  // empty: O is 0
    partials.states[i] = {bits.normal() * 20.0f, static_cast<float>(bits.uniform()) + 0.1f};
    partials.out[i] = bits.normal();
  }
  return partials;
}

TEST(SoftmaxStates, AllAtOnceAreAsOneAfterTheOther) {
  for (std::int64_t seed = 0; seed < scaled(20'000); ++seed) {
    RandomBits bits(static_cast<std::uint64_t>(seed));
    const Partials partials = draw(bits);
    SoftmaxState left;
    float left_out = 0;
    for (int i = 0; i < kStates; ++i) {
      const MergeScales scales = merge(left, partials.states[i]);
      left_out = left_out * scales.left + partials.out[i] * scales.right;
    }
    float scales[kStates];
    const SoftmaxState merged = merge_all(partials.states, scales);
    float out = 0;
    for (int i = 0; i < kStates; ++i) out += partials.out[i] * scales[i];

    ASSERT_EQ(merged.max, left.max) << seed;
    ASSERT_NEAR(merged.sum, left.sum, 1e-5f * (1 + left.sum)) << seed;
    ASSERT_NEAR(out, left_out, 1e-5f * kStates) << seed;
    ASSERT_NEAR(normaliser(merged), normaliser(left), 1e-5f * (1 + normaliser(left))) << seed;
  }
}

TEST(SoftmaxStates, OneAmongEmptyOnesKeepsItsBits) {
  for (int place = 0; place < kStates; ++place) {
    SoftmaxState states[kStates];
    states[place] = {-3.7f, 0.123456f};
    float scales[kStates];
    const SoftmaxState merged = merge_all(states, scales);
    EXPECT_EQ(merged.max, states[place].max);
    EXPECT_EQ(merged.sum, states[place].sum);
    for (int i = 0; i < kStates; ++i) EXPECT_EQ(scales[i], i == place ? 1.0f : 0.0f);
  }
}

TEST(SoftmaxStates, NoneIsEmpty) {
  const SoftmaxState states[kStates];
  float scales[kStates];
  const SoftmaxState merged = merge_all(states, scales);
  EXPECT_TRUE(merged.empty());
  EXPECT_EQ(merged.sum, 0.0f);
  EXPECT_EQ(normaliser(merged), 0.0f);
  EXPECT_EQ(lse_of(merged), -kInfinity);
  for (const float scale : scales) EXPECT_EQ(scale, 0.0f);
}

TEST(SoftmaxStates, NaNStays) {
  SoftmaxState states[kStates];
  states[2] = {0.0f, std::numeric_limits<float>::quiet_NaN()};
  states[5] = {1.0f, 2.0f};
  float scales[kStates];
  EXPECT_TRUE(std::isnan(merge_all(states, scales).sum));
}

}  // namespace
}  // namespace leanattn
