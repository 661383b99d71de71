// One plan over changing lengths, workspaces of any content and of exactly the size
// asked for, and workspaces that are too small or shared in turn.
#include "probe_support.h"

namespace leanattn::testing {
namespace {

class Workspaces : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, Workspaces, every_cache(), cache_name);

// The case's problem, planned for more keys than it has.
Problem problem_for(const Case& problem, std::int64_t max_kv_len) {
  Problem asked = problem_of(problem.arguments, problem.rules());
  asked.max_kv_len = max_kv_len;
  return asked;
}

TEST_P(Workspaces, OnePlanServesGrowingAndShrinkingLengths) {
  constexpr std::int64_t kMost = 2048;
  for (const PlanOptions& options : every_plan(kMost)) {
    CaseSpec spec = probe({kMost, kMost});
    spec.num_kv_heads = 1;
    spec.q_amplitude = 1;
    const Case largest = build_case(spec);
    const Plan made = plan(problem_for(largest, kMost), options);
    const Buffer workspace(made.workspace_bytes / 64 * 64 + 64);
    for (const auto& lengths :
         {std::vector<std::int64_t>{2, 1}, {kMost, 5}, {1, kMost}, {0, 0}, {700, 0}}) {
      Arguments arguments = largest.arguments;
      arguments.lengths = indices(lengths.data(), 2);
      largest.reset_output();
      run(made, arguments, workspace.bytes());
      const Result again = read_output(largest);
      for (const float value : again.out) ASSERT_FALSE(std::isnan(value)) << describe(options);

      // A fresh workspace gives the same bits.
      const Buffer fresh(workspace.size());
      largest.reset_output();
      run(made, arguments, fresh.bytes());
      ASSERT_EQ(again.out, read_output(largest).out) << describe(options);
      ASSERT_EQ(again.lse, read_output(largest).lse) << describe(options);
    }
  }
}

TEST_P(Workspaces, ShorterThanPlannedIsRight) {
  CaseSpec spec = probe({300, 2, 65});
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  const Expected expected = expect(problem);
  for (const Backend* backend : backends_here()) {
    if (!computes(*backend, problem)) continue;
    for (PlanOptions options : every_plan(300)) {
      options.backend = backend->name();
      for (const std::int64_t most : {300, 4096, 100'000}) {
        if (options.batch_invariant && most > 4096) continue;  // a partial for every LeanTile
        Problem asked = problem_on(*backend, problem);
        asked.max_kv_len = most;
        EXPECT_EQ(run_guarded(problem, plan(asked, options)), "") << describe(options);
        const Comparison comparison = compare(problem, expected, read_output(problem));
        EXPECT_TRUE(comparison.passed) << comparison.worst << ' ' << describe(options);
      }
    }
  }
}

TEST_P(Workspaces, LongerThanPlannedIsRefused) {
  const Case problem = build_case(probe({300}));
  const Plan made = plan(problem_for(problem, 299));
  const Buffer workspace(made.workspace_bytes / 64 * 64 + 64);
  EXPECT_THROW(run(made, problem.arguments, workspace.bytes()), InvalidArgument);
  for (const float value : read_output(problem).out) ASSERT_TRUE(std::isnan(value));
}

TEST_P(Workspaces, OneByteShortIsRefusedWithTheSize) {
  const Case problem = build_case(probe({300, 20}));
  for (const PlanOptions& options : every_plan(300)) {
    const Plan made = plan(problem_of(problem.arguments), options);
    ASSERT_GT(made.workspace_bytes, 0u);
    const Buffer workspace(made.workspace_bytes / 64 * 64 + 64);
    try {
      run(made, problem.arguments, workspace.bytes().first(made.workspace_bytes - 1));
      FAIL() << "a workspace of " << made.workspace_bytes - 1 << " bytes was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(concat(made.workspace_bytes)), std::string::npos)
          << error.what();
    }
    for (const float value : read_output(problem).out) ASSERT_TRUE(std::isnan(value));
    // An address that is not aligned is refused as well.
    EXPECT_THROW(run(made, problem.arguments, workspace.bytes().subspan(1)), InvalidArgument);
  }
}

TEST_P(Workspaces, ManySequencesNeedWhatThePlanSays) {
  CaseSpec spec = probe(std::vector<std::int64_t>(2048, 1));
  spec.head_dim = spec.v_head_dim = 8;
  spec.num_kv_heads = 8;
  spec.group_size = 1;
  spec.page_size = 16;
  spec.layout = KvLayout::kContiguous;
  const Case problem = build_case(spec);
  std::vector<PlanOptions> plans(3);
  plans[1].partition = PartitionChoice::kOneTile;
  plans[2].partition = PartitionChoice::kStreamK;
  expect_right(problem, expect(problem), plans);
}

TEST_P(Workspaces, TwoPlansMayUseOneInTurn) {
  CaseSpec spec = probe({300});
  spec.q_amplitude = 1;
  const Case first = build_case(spec);
  spec.lengths = {65, 9, 0};
  spec.q_lens = {1, 1, 1};
  spec.head_dim = 40;
  const Case second = build_case(spec);
  const std::vector<PlanOptions> plans = every_plan(300);
  const Expected expected[] = {expect(first), expect(second)};
  const Buffer workspace(1 << 22);
  for (const PlanOptions& options : plans) {
    for (const Case* problem : {&first, &second, &first}) {
      problem->reset_output();
      run(plan(problem_of(problem->arguments), options), problem->arguments, workspace.bytes());
      const Comparison comparison =
          compare(*problem, expected[problem == &second], read_output(*problem));
      ASSERT_TRUE(comparison.passed) << comparison.worst << ' ' << describe(options);
    }
  }
}

// Numbers whose products pass 64 bits are refused, not wrapped.
TEST(AbsurdNumbers, AreRefusedWhenPlanning) {
  constexpr std::int64_t kAbsurd = std::int64_t{1} << 62;
  const Case problem = build_case([] {
    CaseSpec spec;
    spec.lengths = {300};
    spec.q_lens = {1};
    spec.num_kv_heads = 2;
    return spec;
  }());
  const Problem asked = problem_of(problem.arguments);
  for (const PartitionChoice partition :
       {PartitionChoice::kAuto, PartitionChoice::kOneTile, PartitionChoice::kFixedSplit,
        PartitionChoice::kStreamK}) {
    PlanOptions options;
    options.partition = partition;
    if (partition == PartitionChoice::kFixedSplit) {
      options.num_splits = kAbsurd;
      EXPECT_THROW((void)plan(asked, options), InvalidArgument);
    } else if (partition == PartitionChoice::kStreamK) {
      options.num_workers = kAbsurd;
      EXPECT_THROW((void)plan(asked, options), InvalidArgument);
    }
    options = {};
    options.partition = partition;
    options.batch_invariant = true;
    Problem large = asked;
    large.max_kv_len = std::int64_t{1} << 48;
    large.batch = large.num_queries = std::int64_t{1} << 40;
    EXPECT_THROW((void)plan(large, options), InvalidArgument);
  }
}

}  // namespace
}  // namespace leanattn::testing
