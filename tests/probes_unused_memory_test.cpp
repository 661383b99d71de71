// What a query does not see cannot be observed: memory past the lengths, rest of a
// page, hidden keys. And a NaN that it does see reaches its own rows and no others.
#include "probe_support.h"
#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

class UnusedMemory : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, UnusedMemory, every_cache(), cache_name);

TEST_P(UnusedMemory, PastTheLengthIsNotRead) {
  for (const Poison poison : {Poison::kNaN, Poison::kInfinity}) {
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{1, 3}, {32, 64, 96, 48}, {5}, {9, 12, 503}, {100}}) {
      CaseSpec spec = probe(lengths);
      spec.q_amplitude = 1;
      spec.spare = spec.paged() ? 5 : 2048;
      spec.poison = poison;
      expect_right(build_case(spec));
    }
  }
}

TEST_P(UnusedMemory, RestOfALargePageIsNotRead) {
  for (const std::int64_t page : {128, 256, 544}) {
    CaseSpec spec = probe({5, page - 1, page + 1});
    spec.q_amplitude = 1;
    spec.page_size = page;
    expect_right(build_case(spec));
  }
}

TEST_P(UnusedMemory, EveryLengthAroundATile) {
  for (std::int64_t n = 1; n <= 230; n += n < 140 ? 1 : 9) {
    const Case problem = with_values(probe({n}), [](auto, auto) { return 1; });
    const Expected expected = expect(problem);
    std::vector<PlanOptions> plans(2);
    for (PlanOptions& options : plans) {
      options.partition = PartitionChoice::kStreamK;
      options.num_workers = 1 + n % 3;
    }
    plans[1].batch_invariant = true;
    expect_right(problem, expected, plans);
    ASSERT_NEAR(expected.exact.lse[0], std::log(static_cast<double>(n)), 1e-5);
  }
}

TEST_P(UnusedMemory, PaddingDoesNotCountInTheDenominator) {
  for (const std::int64_t n : {9, 17, 65, 257}) {
    expect_answer(with_values(probe({n}), [](auto, auto) { return 1; }), [n](auto...) {
      return RowAnswer{1, std::log(static_cast<double>(n))};
    });
  }
}

TEST_P(UnusedMemory, ASoftcapMakesNoKeyOfPadding) {
  for (const std::int64_t n : {17, 65, 129}) {
    CaseSpec spec = probe({n});
    spec.rules.softcap = 1;
    expect_answer(with_values(spec, [](auto, auto) { return 1; }), [n](auto...) {
      return RowAnswer{1, std::log(static_cast<double>(n))};
    });
  }
}

TEST_P(UnusedMemory, ZeroesPastTheLengthAreNoKeys) {
  CaseSpec spec = probe({100});
  spec.q_amplitude = 1;
  const Case poisoned = build_case(spec);
  spec.poison = Poison::kZero;
  const Case zeroed = build_case(spec);
  PlanOptions options;
  options.num_workers = 3;
  decode(poisoned.arguments, {}, options);
  decode(zeroed.arguments, {}, options);
  EXPECT_EQ(read_output(poisoned).out, read_output(zeroed).out);
  EXPECT_EQ(read_output(poisoned).lse, read_output(zeroed).lse);
}

TEST_P(UnusedMemory, QueriesPastTheLastOffsetAreRefused) {
  CaseSpec spec = probe({10, 10, 10});
  spec.ragged_q = true;
  spec.q_lens = {7, 7, 7};
  Case problem = build_case(spec);
  expect_right(problem);
  problem.arguments.q.shape[1] = 24;
  problem.arguments.out.shape[1] = 24;
  problem.arguments.lse = {};
  EXPECT_THROW(decode(problem.arguments), InvalidArgument);
}

TEST_P(UnusedMemory, KeysThatNobodySeesMayHoldNaN) {
  CaseSpec spec = probe({6, 90}, 2);
  spec.q_amplitude = 1;
  spec.rules.window = {true, 4, -1};
  expect_right(build_case(spec));
  spec.rules.window = {};
  spec.bias = ElementType::kBool;
  spec.bias_hides = 0.5;
  spec.bias_per_head = spec.bias_per_query = false;
  expect_right(build_case(spec));
}

// A NaN in a row, for every way in which it can be seen by some rows only.
TEST_P(UnusedMemory, ANaNReachesItsOwnRowsOnly) {
  CaseSpec spec = probe({70, 66, 3}, 3);
  spec.q_amplitude = 1;
  spec.rules.window.causal = true;
  {
    const Case problem = build_case(spec);
    problem.set_k(0, 69, 0, NAN);  // seen by the last query of KV head 0
    problem.set_v(1, 64, 1, NAN);  // seen by the last two of KV head 1
    expect_right(problem);
  }
  {
    const Case problem = build_case(spec);
    problem.set_q(0, 1, 2, NAN);
    expect_right(problem);
  }
  {
    const Case problem = build_case(spec);
    store_float(problem.v_row(0, 68, 0), spec.v_type, 5, NAN);  // one element of a value
    expect_right(problem);
  }
  spec.rules.window = {};
  spec.bias = ElementType::kFloat32;
  spec.bias_hides = 0.5;
  const Case problem = build_case(spec);
  problem.set_k(0, 11, 0, NAN);
  problem.set_v(0, 11, 0, NAN);
  problem.set_v(2, 0, 1, INFINITY);
  expect_right(problem);
}

}  // namespace
}  // namespace leanattn::testing
