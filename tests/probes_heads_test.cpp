// Any number of query heads per KV head and any head dim, also where V's differs.
#include "probe_support.h"

namespace leanattn::testing {
namespace {

class Heads : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, Heads, every_cache(), cache_name);

void expect_right_with_few_plans(const Case& problem) {
  std::vector<PlanOptions> plans;
  for (const std::int64_t workers : {1, 3}) {
    for (const bool batch_invariant : {false, true}) {
      PlanOptions& options = plans.emplace_back();
      options.partition = PartitionChoice::kStreamK;
      options.num_workers = workers;
      options.batch_invariant = batch_invariant;
    }
  }
  expect_right(problem, expect(problem), plans);
}

TEST_P(Heads, AnyGroupSize) {
  for (const std::int64_t group : {1, 2, 3, 5, 6, 7, 9, 12, 14, 16, 17, 24, 32, 64, 71}) {
    CaseSpec spec = probe({70, 3});
    spec.group_size = group;
    spec.q_amplitude = 1;
    expect_right_with_few_plans(build_case(spec));
  }
}

TEST_P(Heads, AnyHeadDim) {
  for (const std::int64_t dim : {1,  2,  7,  8,  15, 16, 17,  31,  33,  40,  48,  56,  63,  64,
                                 65, 72, 80, 88, 96, 97, 112, 128, 160, 192, 224, 256, 320, 576}) {
    CaseSpec spec = probe({67});
    spec.head_dim = spec.v_head_dim = dim;
    spec.q_amplitude = 1;
    expect_right_with_few_plans(build_case(spec));
    spec.spare = 0;  // the last key ends where nobody may read
    spec.lengths = {spec.paged() ? spec.page_size : 67};
    expect_right_with_few_plans(build_case(spec));
  }
}

TEST_P(Heads, ValuesWithADimOfTheirOwn) {
  for (const auto& [k, v] :
       {std::pair{64, 128}, {128, 64}, {192, 128}, {576, 512}, {1, 33}, {33, 1}, {40, 7}}) {
    CaseSpec spec = probe({67});
    spec.head_dim = k;
    spec.v_head_dim = v;
    spec.q_amplitude = 1;
    expect_right_with_few_plans(build_case(spec));
  }
}

TEST_P(Heads, QueriesAndKeysOfDifferentTypes) {
  for (const ElementType q :
       {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
    for (const ElementType v :
         {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
      CaseSpec spec = probe({67});
      if (spec.kv_order == KvOrder::kInterleaved && v != spec.k_type) continue;
      spec.q_type = spec.out_type = q;
      spec.v_type = v;
      spec.q_amplitude = 1;
      expect_right_with_few_plans(build_case(spec));
      spec.out_type = ElementType::kFloat32;
      expect_right_with_few_plans(build_case(spec));
    }
  }
}

TEST_P(Heads, SeveralKvHeadsInPagesOf32) {
  CaseSpec spec = probe({70, 33});
  spec.num_kv_heads = 4;
  spec.head_dim = spec.v_head_dim = 96;
  spec.page_size = 32;
  spec.q_amplitude = 1;
  expect_right(build_case(spec));
}

TEST_P(Heads, NineHeadsOverThreeOfDim96) {
  CaseSpec spec = probe({5131});
  spec.num_kv_heads = 3;
  spec.group_size = 3;
  spec.head_dim = spec.v_head_dim = 96;
  spec.page_size = 96;
  spec.q_amplitude = 1;
  expect_right_with_few_plans(build_case(spec));
}

TEST_P(Heads, ALongGroupOfTwoKvHeads) {
  CaseSpec spec = probe({4096});
  spec.group_size = 6;
  spec.head_dim = spec.v_head_dim = 16;
  spec.q_amplitude = 1;
  expect_right_with_few_plans(build_case(spec));
}

TEST_P(Heads, RaggedSequencesIntoFreshOutputs) {
  CaseSpec spec = probe({130, 1});
  spec.group_size = 4;
  spec.q_amplitude = 1;
  expect_right(build_case(spec));
}

}  // namespace
}  // namespace leanattn::testing
