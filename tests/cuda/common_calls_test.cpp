// Calls as most decode steps are have kernels of their own (for_each_common_condition): batches
// around every number of sequences that a lane, a warp or a block knows the lengths of, and calls
// that lack one of the conditions.
#include "cuda_support.h"
#include "testing/check_case.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

class CommonCalls : public CudaTest {};

CaseSpec spec_of(std::int64_t batch) {
  CaseSpec spec;
  RandomBits bits(static_cast<std::uint64_t>(batch));
  for (std::int64_t i = 0; i < batch; ++i) {
    spec.lengths.push_back(bits.chance(0.2) ? 0 : bits.log_between(1, batch == 1 ? 5000 : 200));
  }
  spec.q_lens.assign(spec.lengths.size(), 1);
  spec.num_kv_heads = 2;
  spec.group_size = 4;
  spec.head_dim = spec.v_head_dim = 128;
  spec.q_type = spec.k_type = spec.v_type = spec.out_type = ElementType::kBFloat16;
  spec.with_lse = false;
  return spec;
}

void check_plans(const CaseSpec& spec, std::initializer_list<std::int64_t> all_workers) {
  const Case problem = build_case(spec);
  const Expected expected = expect(problem);
  for (PlanOptions options : cuda_plans()) {
    if (options.batch_invariant) continue;  // never common
    for (const std::int64_t workers : all_workers) {
      options.num_workers = workers;
      const Outcome outcome = check_case(problem, expected, options);
      EXPECT_TRUE(outcome.passed && !outcome.refused)
          << outcome.message << "\n  " << spec.batch() << " sequences, " << describe(options);
    }
  }
}

// 32 lanes know the lengths of 32, 64, 96 or 128 sequences; of more, those of stretches. 333
// workers are more than there are places.
TEST_F(CommonCalls, OfAnyNumberOfSequences) {
  for (const std::int64_t batch : {1, 2, 32, 33, 64, 65, 96, 97, 128, 129, 1025}) {
    CaseSpec spec = spec_of(batch);
    spec.index_type = batch % 2 == 0 ? IndexType::kInt64 : IndexType::kInt32;
    check_plans(spec, {0, 333});
    spec.layout = KvLayout::kPagedDense;
    if (batch < 200) check_plans(spec, {0});
  }
}

TEST_F(CommonCalls, OfAnyNumberOfHeads) {
  for (const std::int64_t heads : {1, 3, 24, 48, 66, 133}) {
    for (const std::int64_t group : {1, 8, 9}) {
      CaseSpec spec = spec_of(3);
      spec.num_kv_heads = heads;
      spec.group_size = group;
      check_plans(spec, {0});
    }
  }
}

TEST_F(CommonCalls, ThatLackACondition) {
  const auto check = [](const auto& change) {
    CaseSpec spec = spec_of(5);
    change(spec);
    check_plans(spec, {0});
  };
  check([](CaseSpec& spec) { spec.with_lse = true; });
  check([](CaseSpec& spec) { spec.out_type = ElementType::kFloat32; });
  check([](CaseSpec& spec) { spec.sinks = ElementType::kFloat32; });
  check([](CaseSpec& spec) { spec.cache_rows = true; });
  check([](CaseSpec& spec) { spec.rules.softcap = 30; });
  check([](CaseSpec& spec) { spec.rules.window.left = 100; });
  check([](CaseSpec& spec) { spec.bias = ElementType::kFloat32; });
  check([](CaseSpec& spec) { spec.alibi = ElementType::kFloat32; });
  check([](CaseSpec& spec) { spec.kv_order = KvOrder::kPadded; });
  check([](CaseSpec& spec) { spec.q_lens.assign(spec.lengths.size(), 2); });
  check([](CaseSpec& spec) {
    spec.ragged_q = true;
    spec.q_lens = {1, 0, 1, 1, 0};
  });
}

}  // namespace
}  // namespace leanattn::testing
