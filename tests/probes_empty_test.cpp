// Rows that see no key: always written, out 0 and lse −∞ (or the sink), and no NaN
// from merging nothing with nothing.
#include <array>

#include "probe_support.h"

namespace leanattn::testing {
namespace {

class EmptyRows : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, EmptyRows, every_cache(), cache_name);

const RowAnswer kEmpty{0, kNoKeys};

TEST_P(EmptyRows, ASequenceWithoutKeysAmongOthers) {
  const Case problem = with_values(probe({0, 3, 0, 1}), [](auto, auto j) { return j + 1; });
  expect_answer(problem, [](auto b, auto, auto) {
    return b == 1 ? RowAnswer{2, std::log(3.0)} : b == 3 ? RowAnswer{1, 0} : kEmpty;
  });
}

TEST_P(EmptyRows, NoSequenceHasKeys) {
  for (const std::size_t batch : {1, 2, 16}) {
    CaseSpec spec = probe(std::vector<std::int64_t>(batch, 0));
    spec.spare = 0;
    spec.spare_columns = 0;  // a page table without columns
    expect_answer(build_case(spec), [](auto...) { return kEmpty; });
  }
}

TEST_P(EmptyRows, NoSequence) { expect_right(build_case(probe({}))); }

TEST_P(EmptyRows, NoQueries) { expect_right(build_case(probe({5, 0, 70}, 0))); }

TEST_P(EmptyRows, NoQueriesOfSomeSequences) {
  CaseSpec spec = probe({3, 0, 4, 2});
  spec.ragged_q = true;
  spec.q_lens = {0, 2, 1, 0};
  expect_answer(with_values(spec, [](auto, auto) { return 2; }), [](auto b, auto, auto) {
    return b == 1 ? kEmpty : RowAnswer{2, std::log(4.0)};
  });
}

TEST_P(EmptyRows, ASinkIsTheDenominatorOfNoKeys) {
  CaseSpec spec = probe({0, 3});
  spec.sinks = ElementType::kFloat32;
  const Case problem = with_values(spec, [](auto, auto) { return 2; });
  auto* sinks = static_cast<float*>(const_cast<void*>(problem.arguments.sinks.data));
  std::fill_n(sinks, spec.num_q_heads(), static_cast<float>(std::log(3.0)));
  expect_answer(problem, [](auto b, auto, auto) {
    return b == 0 ? RowAnswer{0, std::log(3.0)} : RowAnswer{1, std::log(6.0)};
  });
}

TEST_P(EmptyRows, FewerKeysThanWorkers) {
  for (const std::int64_t n : {1, 3}) {
    CaseSpec spec = probe({n});
    spec.q_amplitude = 1;
    expect_right(build_case(spec));
  }
}

TEST_P(EmptyRows, OneKeyGivesItsValueAndItsScore) {
  CaseSpec spec = probe({1});
  Case problem = build_case(spec);
  for (std::int64_t h = 0; h < spec.num_q_heads(); ++h) problem.set_q(0, 0, h, 1);
  for (std::int64_t h = 0; h < spec.num_kv_heads; ++h) {
    problem.set_k(0, 0, h, 0.5f);
    problem.set_v(0, 0, h, 3);
  }
  expect_answer(problem, [](auto...) { return RowAnswer{3, 64 * 0.5 / 8}; });
}

TEST_P(EmptyRows, MoreQueriesThanKeysUnderACausalMask) {
  CaseSpec spec = probe({2}, 5);
  spec.rules.window.causal = true;
  expect_answer(counting_values(spec), [](auto, auto i, auto) {
    return i < 3 ? kEmpty : i == 3 ? RowAnswer{0, 0} : RowAnswer{0.5, std::log(2.0)};
  });
}

// Hides keys [0, first) of every row by a bias of the given type.
Case hide_below(const CaseSpec& spec, std::int64_t first) {
  Case problem = build_case(spec);
  const TensorView<4>& bias = problem.arguments.bias;
  auto* data = const_cast<void*>(bias.data);
  for (std::int64_t b = 0; b < spec.batch(); ++b) {
    for (std::int64_t h = 0; h < spec.num_q_heads(); ++h) {
      for (std::int64_t j = 0; j < bias.shape[3]; ++j) {
        const std::int64_t at = bias.offset(b, h, 0, j);
        if (bias.type == ElementType::kBool) {
          static_cast<std::uint8_t*>(data)[at] = j >= first;
        } else {
          store_float(data, bias.type, at, j < first ? -INFINITY : 0.0f);
        }
      }
    }
    for (std::int64_t head = 0; head < spec.num_kv_heads; ++head) {
      for (std::int64_t j = 0; j < spec.lengths[static_cast<std::size_t>(b)]; ++j) {
        problem.set_v(b, j, head, j < first ? NAN : static_cast<float>(j - first));
        problem.set_k(b, j, head, j < first ? NAN : 0.0f);
      }
    }
  }
  return problem;
}

TEST_P(EmptyRows, AMaskThatHidesEveryKey) {
  for (const ElementType type :
       {ElementType::kBool, ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
    CaseSpec spec = probe({7, 300});
    spec.bias = type;
    expect_answer(hide_below(spec, 300), [](auto...) { return kEmpty; });
  }
}

TEST_P(EmptyRows, AMaskThatHidesTheFirstTiles) {
  for (const ElementType type :
       {ElementType::kBool, ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
    CaseSpec spec = probe({600});
    spec.bias = type;
    expect_answer(hide_below(spec, 590), [](auto...) { return RowAnswer{4.5, std::log(10.0)}; });
  }
}

// One row of the merge: O and lse.
struct State {
  float out;
  float lse;
};

State merge_in_one_call(const std::vector<State>& states) {
  std::vector<float> outs;
  std::vector<float> lses;
  for (const State& state : states) {
    outs.push_back(state.out);
    lses.push_back(state.lse);
  }
  const auto parts = static_cast<std::int64_t>(states.size());
  State merged{NAN, NAN};
  merge_states(contiguous<4, const void*>(outs.data(), ElementType::kFloat32, {parts, 1, 1, 1}),
               contiguous<3, const void*>(lses.data(), ElementType::kFloat32, {parts, 1, 1}),
               contiguous<3, void*>(&merged.out, ElementType::kFloat32, {1, 1, 1}),
               contiguous<2, void*>(&merged.lse, ElementType::kFloat32, {1, 1}));
  return merged;
}

State merge_into_first(State a, State b) {
  const auto out_a = contiguous<3, void*>(&a.out, ElementType::kFloat32, {1, 1, 1});
  const auto lse_a = contiguous<2, void*>(&a.lse, ElementType::kFloat32, {1, 1});
  const auto out_b = contiguous<3, void*>(&b.out, ElementType::kFloat32, {1, 1, 1});
  const auto lse_b = contiguous<2, void*>(&b.lse, ElementType::kFloat32, {1, 1});
  merge_states(as_const(out_a), as_const(lse_a), as_const(out_b), as_const(lse_b), out_a, lse_a);
  return a;
}

TEST(MergeOfEmptyStates, KeepsTheOtherBitForBit) {
  for (const float empty : {-INFINITY, INFINITY}) {
    const State nothing{NAN, empty};
    const State five{5.0f, 0.6931472f};
    for (const State& merged :
         {merge_into_first(nothing, five), merge_into_first(five, nothing),
          merge_in_one_call({nothing, five, nothing}), merge_in_one_call({five}),
          merge_in_one_call({nothing, nothing, five})}) {
      EXPECT_EQ(merged.out, five.out);
      EXPECT_EQ(merged.lse, five.lse);
    }
  }
}

TEST(MergeOfEmptyStates, IsEmpty) {
  for (const float empty : {-INFINITY, INFINITY}) {
    const State nothing{NAN, empty};
    for (const State& merged : {merge_into_first(nothing, nothing), merge_in_one_call({nothing}),
                                merge_in_one_call({nothing, nothing, nothing})}) {
      EXPECT_EQ(merged.out, 0.0f);
      EXPECT_EQ(merged.lse, -INFINITY);
    }
  }
}

TEST(MergeOfEmptyStates, FollowsAnEmptyChunkOfKeys) {
  CaseSpec spec;
  spec.lengths = {2};
  spec.q_lens = {1};
  spec.head_dim = spec.v_head_dim = 1;
  spec.q_amplitude = 0;
  State chunks[2];
  for (const std::int64_t n : {2, 0}) {
    spec.lengths = {n};
    const Case chunk = build_case(spec);
    for (std::int64_t j = 0; j < n; ++j) chunk.set_v(0, j, 0, 1);
    decode(chunk.arguments);
    const Result result = read_output(chunk);
    chunks[n == 0] = {result.out[0], result.lse[0]};
  }
  const State merged = merge_into_first(chunks[0], chunks[1]);
  EXPECT_EQ(merged.out, 1.0f);
  EXPECT_NEAR(merged.lse, std::log(2.0), 1e-6);
  const State reversed = merge_into_first(chunks[1], {5, 0});
  EXPECT_EQ(reversed.out, 5.0f);
  EXPECT_EQ(reversed.lse, 0.0f);
}

}  // namespace
}  // namespace leanattn::testing
