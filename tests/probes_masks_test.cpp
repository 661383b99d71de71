// Windows, causal alignment, softcap, sinks, ALiBi and tree masks, each with an
// answer in closed form.
#include "probe_support.h"

namespace leanattn::testing {
namespace {

class Masks : public Probe {
 protected:
  // A tree of four nodes behind `prefix` keys: parents none, 0, 0, 1. V row j of the
  // prefix holds prefix_value(j), node i holds node_value + i.
  template <class Value>
  static Case tree_of_four(const CaseSpec& spec, const Value& prefix_value, float node_value) {
    constexpr bool kSees[4][4] = {{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 0, 1, 0}, {1, 1, 0, 1}};
    Case problem = with_values(spec, [&](auto, auto j) { return prefix_value(j); });
    const TensorView<3>& tree = problem.arguments.tree_mask;
    auto* data = static_cast<std::uint8_t*>(const_cast<void*>(tree.data));
    const std::int64_t prefix = spec.lengths[0] - 4;
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) data[tree.offset(0, i, j)] = kSees[i][j];
      for (std::int64_t head = 0; head < spec.num_kv_heads; ++head) {
        problem.set_k(0, prefix + i, head, 0);
        problem.set_v(0, prefix + i, head, node_value + static_cast<float>(i));
      }
    }
    return problem;
  }
};
INSTANTIATE_TEST_SUITE_P(Caches, Masks, every_cache(), cache_name);

TEST_P(Masks, AWindowCountsBothEnds) {
  CaseSpec spec = probe({5});
  spec.rules.window.left = 2;
  expect_answer(counting_values(spec), [](auto...) { return RowAnswer{3, std::log(3.0)}; });
  spec.rules.window.left = 0;
  expect_answer(counting_values(spec), [](auto...) { return RowAnswer{4, 0}; });
  spec = probe({5}, 2);
  spec.rules.window = {false, 1, 0};
  expect_answer(counting_values(spec), [](auto, auto i, auto) {
    return RowAnswer{2.5 + static_cast<double>(i), std::log(2.0)};
  });
}

TEST_P(Masks, AWindowHidesOldKeys) {
  CaseSpec spec = probe({600});
  spec.rules.window = {true, 511, -1};
  const Case problem = with_values(spec, [](auto, auto j) { return j < 88 ? 1 : 0; });
  expect_answer(problem, [](auto...) { return RowAnswer{0, std::log(512.0)}; });
}

TEST_P(Masks, AWindowWiderThanTheSequenceHidesNothing) {
  CaseSpec spec = probe({70});
  spec.rules.window = {true, std::int64_t{1} << 48, std::int64_t{1} << 48};
  expect_answer(counting_values(spec), [](auto...) { return RowAnswer{34.5, std::log(70.0)}; });
}

TEST_P(Masks, CausalQueriesAlignToTheLastKey) {
  CaseSpec spec = probe({4}, 2);
  spec.rules.window.causal = true;
  expect_answer(counting_values(spec), [](auto, auto i, auto) {
    return i == 0 ? RowAnswer{1, std::log(3.0)} : RowAnswer{1.5, std::log(4.0)};
  });
}

TEST_P(Masks, CausalPrefillOfAWholeSequence) {
  CaseSpec spec = probe({150}, 150);
  spec.num_kv_heads = 1;
  spec.rules.window.causal = true;
  expect_answer(counting_values(spec), [](auto, auto i, auto) {
    return RowAnswer{static_cast<double>(i) / 2, std::log(static_cast<double>(i + 1))};
  });
}

TEST_P(Masks, ASoftcapBendsScores) {
  CaseSpec spec = probe({2});
  spec.head_dim = spec.v_head_dim = 1;
  spec.rules.scale = 1.0f;
  spec.rules.softcap = 2;
  Case problem = with_values(spec, [](auto, auto j) { return 1 - j; });
  for (std::int64_t h = 0; h < spec.num_q_heads(); ++h) problem.set_q(0, 0, h, 2);
  for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
    problem.set_k(0, 0, h, 1);
    problem.set_k(0, 1, h, -1);
  }
  expect_answer(problem, [](auto...) { return RowAnswer{0.9546258, 1.5696241}; });
}

TEST_P(Masks, ASoftcapKeepsLargeScoresFinite) {
  CaseSpec spec = probe({70});
  spec.rules.softcap = 30;
  spec.q_amplitude = 1000;
  expect_right(build_case(spec));
}

TEST_P(Masks, ASinkTakesItsShareOnce) {
  CaseSpec spec = probe({3});
  spec.sinks = ElementType::kFloat32;
  spec.rules.softcap = 0.1f;  // neither capped nor scaled
  spec.rules.scale = 7.0f;
  const Case problem = with_values(spec, [](auto, auto) { return 1; });
  auto* sinks = static_cast<float*>(const_cast<void*>(problem.arguments.sinks.data));
  std::fill_n(sinks, spec.num_q_heads(), static_cast<float>(std::log(3.0)));
  expect_answer(problem, [](auto...) { return RowAnswer{0.5, std::log(6.0)}; });
}

TEST_P(Masks, SinksFarAboveAndBelowTheScores) {
  CaseSpec spec = probe({70});
  spec.sinks = ElementType::kFloat32;
  const Case problem = with_values(spec, [](auto, auto) { return 1; });
  auto* sinks = static_cast<float*>(const_cast<void*>(problem.arguments.sinks.data));
  for (const float sink : {-INFINITY, -200.0f, 200.0f}) {
    std::fill_n(sinks, spec.num_q_heads(), sink);
    expect_answer(problem, [sink](auto...) {
      return sink < 0 ? RowAnswer{1, std::log(70.0)} : RowAnswer{0, 200};
    });
  }
}

TEST_P(Masks, AlibiCountsFromTheQuery) {
  CaseSpec spec = probe({3});
  spec.alibi = ElementType::kFloat32;
  const Case problem = counting_values(spec);
  auto* slopes = static_cast<float*>(const_cast<void*>(problem.arguments.alibi_slopes.data));
  std::fill_n(slopes, spec.num_q_heads(), 1.0f);
  expect_answer(problem, [](auto...) { return RowAnswer{1.5752104, 0.4076060}; });
}

TEST_P(Masks, ATreeHidesTheOtherBranches) {
  CaseSpec spec = probe({7}, 4);
  spec.tree = TreeKind::kTree;
  const Case problem = tree_of_four(
      spec, [](auto j) { return j; }, 3);
  expect_answer(problem, [](auto, auto i, auto) {
    const double mean[] = {1.5, 2, 2.2, 8.0 / 3};
    const double keys[] = {4, 5, 5, 6};
    return RowAnswer{mean[i], std::log(keys[i])};
  });
}

TEST_P(Masks, ATreeAcrossTwoTiles) {
  for (const std::int64_t prefix : {61, 62, 63, 64, 254}) {
    CaseSpec spec = probe({prefix + 4}, 4);
    spec.tree = TreeKind::kTree;
    spec.rules.window.causal = true;
    const Case problem = tree_of_four(
        spec, [](auto) { return 0; }, 1);
    expect_answer(problem, [prefix](auto, auto i, auto) {
      const double sum[] = {1, 3, 4, 7};
      const double keys[] = {1, 2, 2, 3};
      const double all = static_cast<double>(prefix) + keys[i];
      return RowAnswer{sum[i] / all, std::log(all)};
    });
  }
}

TEST_P(Masks, MaskedIsTruncated) {
  CaseSpec spec = probe({8});
  spec.q_amplitude = 1;
  spec.bias = ElementType::kBool;
  spec.bias_hides = 0;
  const Case masked = build_case(spec);
  const TensorView<4>& bias = masked.arguments.bias;
  auto* keep = static_cast<std::uint8_t*>(const_cast<void*>(bias.data));
  for (std::int64_t h = 0; h < spec.num_q_heads(); ++h) {
    for (std::int64_t j = 4; j < 8; ++j) keep[bias.offset(0, h, 0, j)] = 0;
  }
  Arguments truncated = masked.arguments;
  const std::int64_t four = 4;
  truncated.bias = {};
  truncated.lengths = indices(&four, 1);
  decode(masked.arguments);
  const Result with_mask = read_output(masked);
  decode(truncated);
  EXPECT_EQ(with_mask.out, read_output(masked).out);
  EXPECT_EQ(with_mask.lse, read_output(masked).lse);
}

// What a plan was not told of is refused, not ignored.
TEST_P(Masks, AnArgumentThatWasNotPlannedIsRefused) {
  CaseSpec spec = probe({70}, 2);
  const Case plain = build_case(spec);
  const Plan made = plan(problem_of(plain.arguments));
  const Buffer workspace((made.workspace_bytes + 63) / 64 * 64);
  for (int extra = 0; extra < 4; ++extra) {
    CaseSpec with_extra = spec;
    if (extra == 0) with_extra.sinks = ElementType::kFloat32;
    if (extra == 1) with_extra.alibi = ElementType::kFloat32;
    if (extra == 2) with_extra.bias = ElementType::kFloat32;
    if (extra == 3) with_extra.tree = TreeKind::kTree;
    const Case problem = build_case(with_extra);
    EXPECT_THROW(run(made, problem.arguments, workspace.bytes()), InvalidArgument);
    const Plan expecting = plan(problem_of(problem.arguments));
    const Buffer larger((expecting.workspace_bytes + 63) / 64 * 64);
    EXPECT_THROW(run(expecting, plain.arguments, larger.bytes()), InvalidArgument);
    for (const float value : read_output(problem).out) ASSERT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace leanattn::testing
