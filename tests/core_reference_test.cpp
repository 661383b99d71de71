// The reference gives the answers that follow from the definition in closed form:
// with q = 0 a row is the mean of the values it sees, and its lse the log of their
// number.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "core_helpers.h"
#include "leanattn/attention.h"
#include "leanattn/half.h"

namespace leanattn {
namespace {

using testing_core::Call;
using testing_core::kInfinity;
using testing_core::kNaN;

constexpr auto kF32 = ElementType::kFloat32;

Window causal() { return {.causal = true}; }

ScoreRules with_window(Window window) {
  ScoreRules rules;
  rules.window = window;
  return rules;
}

TEST(CoreReference, ASequenceWithoutKeysIsZeroWithLseMinusInfinity) {
  Call call({0, 3});
  for (std::int64_t j = 0; j < 3; ++j) call.set_value(1, j, static_cast<float>(j + 1));
  reference(call.arguments);
  EXPECT_EQ(call.out_of(0), 0.0f);
  EXPECT_EQ(call.lse_of_row(0), -kInfinity);
  EXPECT_FLOAT_EQ(call.out_of(1), 2.0f);
  EXPECT_FLOAT_EQ(call.lse_of_row(1), 1.0986123f);
}

TEST(CoreReference, NoSequencesAndNoKeysAreFine) {
  Call none(std::vector<std::int32_t>{});
  EXPECT_NO_THROW(reference(none.arguments));
  Call empty({0, 0});
  reference(empty.arguments);
  for (const float value : empty.out) EXPECT_EQ(value, 0.0f);
  for (const float value : empty.lse) EXPECT_EQ(value, -kInfinity);
  Call no_queries({3, 3}, 0);
  EXPECT_NO_THROW(reference(no_queries.arguments));
}

TEST(CoreReference, MeanAndLogOfTheCount) {
  for (const std::int32_t n : {1, 2, 9, 12, 257, 503, 600}) {
    Call call({n});
    reference(call.arguments);
    EXPECT_FLOAT_EQ(call.out_of(0), static_cast<float>(n - 1) / 2) << n;
    EXPECT_FLOAT_EQ(call.lse_of_row(0), std::log(static_cast<float>(n))) << n;
  }
}

TEST(CoreReference, KeysPastALengthAreNeverRead) {
  Call call({1, 3});
  call.lengths = {1, 2};
  for (const std::int64_t b : {0, 1}) {
    for (std::int64_t j = call.lengths[static_cast<std::size_t>(b)]; j < 3; ++j) {
      call.set_key(b, j, kNaN);
      call.set_value(b, j, kInfinity);
    }
  }
  reference(call.arguments);
  EXPECT_EQ(call.out_of(0), 0.0f);
  EXPECT_FLOAT_EQ(call.out_of(1), 0.5f);
}

TEST(CoreReference, CausalIsAlignedAtTheLastQuery) {
  Call call({4}, 2);
  reference(call.arguments, with_window(causal()));
  EXPECT_FLOAT_EQ(call.out_of(0), 1.0f);
  EXPECT_FLOAT_EQ(call.lse_of_row(0), std::log(3.0f));
  EXPECT_FLOAT_EQ(call.out_of(1), 1.5f);

  Call more_queries({2}, 4);  // the first two see nothing
  reference(more_queries.arguments, with_window(causal()));
  EXPECT_EQ(more_queries.out_of(0), 0.0f);
  EXPECT_EQ(more_queries.lse_of_row(1), -kInfinity);
  EXPECT_EQ(more_queries.out_of(2), 0.0f);
  EXPECT_EQ(more_queries.lse_of_row(2), 0.0f);
  EXPECT_FLOAT_EQ(more_queries.out_of(3), 0.5f);
}

TEST(CoreReference, WindowsAreInclusive) {
  Call left({5});
  reference(left.arguments, with_window({.left = 2}));
  EXPECT_FLOAT_EQ(left.out_of(0), 3.0f);
  EXPECT_FLOAT_EQ(left.lse_of_row(0), std::log(3.0f));

  Call both({5}, 3);  // positions 2, 3, 4
  reference(both.arguments, with_window({.left = 1, .right = 1}));
  EXPECT_FLOAT_EQ(both.out_of(0), 2.0f);
  EXPECT_FLOAT_EQ(both.out_of(1), 3.0f);
  EXPECT_FLOAT_EQ(both.out_of(2), 3.5f);

  Call old({600});
  for (std::int64_t j = 0; j < 600; ++j) old.set_value(0, j, j < 88 ? 1.0f : 0.0f);
  reference(old.arguments, with_window({.left = 511}));
  EXPECT_EQ(old.out_of(0), 0.0f);
}

TEST(CoreReference, SoftcapComesAfterTheScaleAndBeforeTheMask) {
  Call call({2}, 1, 1, 1, 1, 1);
  call.q[0] = 1.0f;
  call.set_key(0, 0, 2.0f);
  call.set_key(0, 1, -2.0f);
  call.set_value(0, 0, 1.0f);
  call.set_value(0, 1, 0.0f);
  ScoreRules rules;
  rules.scale = 1.0f;
  rules.softcap = 2.0f;
  reference(call.arguments, rules);
  EXPECT_FLOAT_EQ(call.out_of(0), 0.9546258f);
  EXPECT_FLOAT_EQ(call.lse_of_row(0), 1.5696241f);
  rules.softcap = 0.0f;
  reference(call.arguments, rules);
  EXPECT_FLOAT_EQ(call.out_of(0), 0.9820138f);
}

TEST(CoreReference, AlibiFallsWithTheDistance) {
  Call call({3});
  const float slope = 1.0f;
  call.arguments.alibi_slopes = contiguous<1, const void*>(&slope, kF32, {1});
  reference(call.arguments);
  EXPECT_FLOAT_EQ(call.out_of(0), 1.5752104f);
  EXPECT_NEAR(call.lse_of_row(0), 0.4076060, 1e-6);
}

TEST(CoreReference, ASinkEntersTheDenominatorOnce) {
  Call call({3});
  for (std::int64_t j = 0; j < 3; ++j) call.set_value(0, j, 1.0f);
  float sink = std::log(3.0f);
  call.arguments.sinks = contiguous<1, const void*>(&sink, kF32, {1});
  ScoreRules rules;
  rules.scale = 100.0f;  // neither scaled
  rules.softcap = 0.1f;  // nor capped
  reference(call.arguments, rules);
  EXPECT_FLOAT_EQ(call.out_of(0), 0.5f);
  EXPECT_FLOAT_EQ(call.lse_of_row(0), std::log(6.0f));

  call.lengths = {0};
  reference(call.arguments, rules);
  EXPECT_EQ(call.out_of(0), 0.0f);
  EXPECT_EQ(call.lse_of_row(0), sink);

  sink = -kInfinity;
  reference(call.arguments, rules);
  EXPECT_EQ(call.out_of(0), 0.0f);
  EXPECT_EQ(call.lse_of_row(0), -kInfinity);
}

TEST(CoreReference, AFloatingBiasIsAddedAndMinusInfinityHides) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
    Call call({600});
    std::vector<float> bias(600);
    for (std::int64_t j = 0; j < 600; ++j) {
      store_float(bias.data(), type, j, j < 590 ? -kInfinity : 0.25f);
      if (j < 590) call.set_key(0, j, kNaN);
      if (j < 590) call.set_value(0, j, kNaN);
    }
    call.arguments.bias = contiguous<4, const void*>(bias.data(), type, {1, 1, 1, 600});
    reference(call.arguments);
    EXPECT_FLOAT_EQ(call.out_of(0), 594.5f);
    EXPECT_FLOAT_EQ(call.lse_of_row(0), 0.25f + std::log(10.0f));
  }
}

TEST(CoreReference, ABoolBiasKeeps) {
  Call call({3}, 1, 2, 1);
  const std::uint8_t keep[6] = {1, 0, 1, 0, 0, 0};  // head 1 sees nothing
  call.set_key(0, 1, kNaN);
  call.set_value(0, 1, kNaN);
  call.arguments.bias = contiguous<4, const void*>(keep, ElementType::kBool, {1, 2, 1, 3});
  reference(call.arguments);
  EXPECT_FLOAT_EQ(call.out_of(0), 1.0f);
  EXPECT_FLOAT_EQ(call.lse_of_row(0), std::log(2.0f));
  EXPECT_EQ(call.out_of(1), 0.0f);
  EXPECT_EQ(call.lse_of_row(1), -kInfinity);
}

TEST(CoreReference, ATreeMaskConcernsTheNewestKeys) {
  Call call({7}, 4);
  const std::uint8_t mask[16] = {1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1};
  call.arguments.tree_mask = contiguous<3, const void*>(mask, ElementType::kBool, {1, 4, 4});
  reference(call.arguments);
  EXPECT_FLOAT_EQ(call.out_of(0), 1.5f);
  EXPECT_FLOAT_EQ(call.out_of(1), 2.0f);
  EXPECT_FLOAT_EQ(call.out_of(2), 2.2f);
  EXPECT_FLOAT_EQ(call.out_of(3), 8.0f / 3.0f);
}

TEST(CoreReference, NaNInAVisibleKeyReachesItsRowsAndNoOthers) {
  for (const bool in_value : {false, true}) {
    Call call({3, 3}, 2);
    if (in_value) {
      call.set_value(1, 2, kNaN);
    } else {
      call.set_key(1, 2, kNaN);
    }
    reference(call.arguments, with_window(causal()));
    EXPECT_FLOAT_EQ(call.out_of(0), 0.5f);
    EXPECT_FLOAT_EQ(call.out_of(1), 1.0f);
    EXPECT_FLOAT_EQ(call.out_of(2), 0.5f);
    EXPECT_TRUE(std::isnan(call.out_of(3)));
  }
}

TEST(CoreReference, AVisibleKeyOfScoreMinusInfinityWeighsNothing) {
  Call call({2}, 1, 1, 1, 1, 1);
  call.q[0] = 1.0f;
  call.set_key(0, 1, -kInfinity);
  reference(call.arguments);
  EXPECT_EQ(call.out_of(0), 0.0f);
  EXPECT_EQ(call.lse_of_row(0), 0.0f);
  call.set_key(0, 0, -kInfinity);
  reference(call.arguments);
  EXPECT_EQ(call.out_of(0), 0.0f);
  EXPECT_EQ(call.lse_of_row(0), -kInfinity);
}

TEST(CoreReference, QueryHeadsShareTheirKvHead) {
  for (const std::int64_t group : {1, 2, 5, 7, 9, 24, 71}) {
    Call call({1}, 1, 2 * group, 2, 3, 5);
    for (std::size_t d = 0; d < 5; ++d) call.v[d] = 1.0f;
    for (std::size_t d = 5; d < 10; ++d) call.v[d] = 2.0f;
    reference(call.arguments);
    for (std::int64_t head = 0; head < 2 * group; ++head) {
      EXPECT_EQ(call.out_of(head), head < group ? 1.0f : 2.0f) << group << " " << head;
    }
  }
}

TEST(CoreReference, DefaultScaleIsOneOverTheRootOfHeadDim) {
  Call call({1}, 1, 1, 1, 16, 1);
  for (float& x : call.q) x = 1.0f;
  call.set_key(0, 0, 1.0f);
  reference(call.arguments);
  EXPECT_FLOAT_EQ(call.lse_of_row(0), 4.0f);
}

TEST(CoreReference, RaggedQueriesArePackedByOffsets) {
  Call call({3, 5, 0, 2});  // 2, 0, 1 and 1 queries
  const std::vector<std::int64_t> offsets = {0, 2, 2, 3, 4};
  call.arguments.q.shape = {1, 4, 1, 2};
  call.arguments.out.shape = {1, 4, 1, 2};
  call.arguments.lse.shape = {1, 4, 1};
  call.arguments.q.strides = call.arguments.out.strides = {8, 2, 2, 1};
  call.arguments.lse.strides = {4, 1, 1};
  call.arguments.q_offsets = indices(offsets.data(), 5);
  reference(call.arguments, with_window(causal()));
  EXPECT_FLOAT_EQ(call.out_of(0), 0.5f);
  EXPECT_FLOAT_EQ(call.out_of(1), 1.0f);
  EXPECT_EQ(call.out_of(2), 0.0f);
  EXPECT_EQ(call.lse_of_row(2), -kInfinity);
  EXPECT_FLOAT_EQ(call.out_of(3), 0.5f);
}

}  // namespace
}  // namespace leanattn
