// Few workers, as where a process is lent a part of the device: nobody waits for anybody,
// so one worker is enough for any partition. And more than run at once: blocks of stream_k
// then take several shares, one after the other.
#include "cuda_support.h"
#include "testing/check_case.h"

namespace leanattn::testing {
namespace {

class AnyWorkers : public CudaTest {};

CaseSpec spec_of(KvLayout layout) {
  CaseSpec spec;
  spec.lengths = {3000, 0, 1, 257};
  spec.q_lens = {2, 2, 2, 2};
  spec.num_kv_heads = 2;
  spec.group_size = 4;
  spec.head_dim = spec.v_head_dim = 128;
  spec.q_type = spec.k_type = spec.v_type = spec.out_type = ElementType::kBFloat16;
  spec.layout = layout;
  spec.rules.window.causal = true;
  return spec;
}

// Every run is in a workspace full of 0xFF before it is initialised, and twice: see
// run_guarded.
TEST_F(AnyWorkers, ServeEveryPartition) {
  for (const KvLayout layout : {KvLayout::kContiguous, KvLayout::kPagedDense}) {
    const Case problem = build_case(spec_of(layout));
    const Expected expected = expect(problem);
    for (PlanOptions options : cuda_plans()) {
      for (const std::int64_t workers : {1, 2, 3, 333}) {
        options.num_workers = workers;
        const Outcome outcome = check_case(problem, expected, options);
        EXPECT_TRUE(outcome.passed && !outcome.refused)
            << outcome.message << "\n  " << describe(options);
      }
    }
  }
}

}  // namespace
}  // namespace leanattn::testing
