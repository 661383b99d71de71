// Cutting a sequence among workers and merging its partials: any number of splits
// and workers, wide values, strided outputs, plans made again and again.
#include "probe_support.h"
#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

class Splits : public Probe {
 protected:
  static std::vector<PlanOptions> fixed_splits(const std::vector<std::int64_t>& numbers) {
    std::vector<PlanOptions> plans;
    for (const std::int64_t splits : numbers) {
      PlanOptions& options = plans.emplace_back();
      options.partition = PartitionChoice::kFixedSplit;
      options.num_splits = splits;
    }
    return plans;
  }
};
INSTANTIATE_TEST_SUITE_P(Caches, Splits, every_cache(), cache_name);

TEST_P(Splits, StridedQueriesAndOutputs) {
  for (const RowOrder order : {RowOrder::kContiguous, RowOrder::kPadded}) {
    CaseSpec spec = probe({100}, 4);
    spec.q_amplitude = 1;
    spec.q_order = spec.out_order = order;
    expect_right(build_case(spec));
  }
}

TEST_P(Splits, OddBatchAndHeads) {
  CaseSpec spec = probe({301, 77, 512});
  spec.num_kv_heads = 5;
  spec.group_size = 1;
  spec.q_amplitude = 1;
  expect_right(build_case(spec));
}

TEST_P(Splits, SeveralFullPagesEach) {
  CaseSpec spec = probe({1024, 1024});
  spec.num_kv_heads = 1;
  spec.q_amplitude = 1;
  expect_right(build_case(spec));
}

TEST_P(Splits, LongContextStaysWithinTheTypesError) {
  CaseSpec spec = probe({4096});
  spec.head_dim = spec.v_head_dim = 128;
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  expect_right(problem, expect(problem), fixed_splits({1, 16, 32}));
}

TEST_P(Splits, LargeHeadsInPermutedPages) {
  for (const std::size_t batch : {1, 15}) {
    CaseSpec spec = probe(std::vector<std::int64_t>(batch, 70));
    spec.head_dim = spec.v_head_dim = 256;
    spec.num_kv_heads = 1;
    spec.page_size = 32;
    spec.q_amplitude = 1;
    expect_right(build_case(spec));
  }
}

TEST_P(Splits, WideValues) {
  CaseSpec spec = probe({130, 9});
  spec.v_head_dim = 320;
  spec.q_amplitude = 1;
  expect_right(build_case(spec));
}

TEST_P(Splits, ManySequences) {
  for (const std::size_t batch : {2, 5, 32}) {
    CaseSpec spec = probe(std::vector<std::int64_t>(batch, 33));
    spec.num_kv_heads = 1;
    spec.q_amplitude = 1;
    expect_right(build_case(spec));
  }
}

TEST_P(Splits, LseDoesNotDependOnTheNumberOfSplits) {
  CaseSpec spec = probe({128});
  expect_answer(counting_values(spec), [](auto...) { return RowAnswer{63.5, std::log(128.0)}; });
  spec.rules.window = {true, 9, -1};  // most splits of all keys would see none
  expect_answer(counting_values(spec), [](auto...) { return RowAnswer{122.5, std::log(10.0)}; });
}

TEST_P(Splits, MoreSplitsThanKeys) {
  for (const std::int64_t n : {1, 2, 40, 300}) {
    const Case problem = with_values(probe({n}), [](auto, auto) { return 1; });
    expect_right(problem, expect(problem), fixed_splits({n, n + 1, 1000}));
  }
}

TEST_P(Splits, ManyDrawsOfLengthsAndTables) {
  RandomBits bits(7);
  for (std::int64_t i = 0; i < scaled(40); ++i) {
    CaseSpec spec = probe(std::vector<std::int64_t>(static_cast<std::size_t>(bits.between(1, 4))));
    for (std::int64_t& n : spec.lengths) n = bits.log_between(1, 700);
    spec.num_kv_heads = 1;
    spec.q_amplitude = 1;
    spec.seed = bits.next();
    const Case problem = build_case(spec);
    for (const Backend* backend : backends_here()) {
      if (!computes(*backend, problem)) continue;
      expect_right_on(*backend, problem, expect(problem), {draw_options(spec.seed, *backend)});
    }
  }
}

// A workspace kept over many plans and runs never carries anything over.
TEST_P(Splits, AWorkspaceUsedAgainAndAgain) {
  CaseSpec spec = probe({200, 65});
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  const Problem asked = problem_of(problem.arguments, problem.rules());
  const std::vector<PlanOptions> plans = every_plan(200);
  const Buffer workspace(1 << 22);
  std::vector<Result> first(plans.size());
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      problem.reset_output();
      run(plan(asked, plans[i]), problem.arguments, workspace.bytes());
      Result result = read_output(problem);
      if (round == 0) {
        first[i] = std::move(result);
      } else {
        ASSERT_EQ(result.out, first[i].out) << describe(plans[i]);
        ASSERT_EQ(result.lse, first[i].lse) << describe(plans[i]);
      }
    }
  }
}

// Partials are f32 until the end: the error does not grow with the splits.
TEST_P(Splits, TheErrorDoesNotGrowWithTheNumberOfSplits) {
  CaseSpec spec = probe({8192});
  spec.num_kv_heads = spec.group_size = 1;
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  const Expected expected = expect(problem);
  for (const Backend* backend : backends_here()) {
    if (!computes(*backend, problem)) continue;
    const auto units = [&](std::int64_t splits) {
      PlanOptions options = fixed_splits({splits}).front();
      options.backend = backend->name();
      const Outcome outcome = check_case(problem, expected, options);
      EXPECT_TRUE(outcome.passed) << outcome.message;
      return outcome.comparison.units;
    };
    EXPECT_LE(units(32), std::max(1.0, 1.5 * units(1))) << backend->name();
  }
}

}  // namespace
}  // namespace leanattn::testing
