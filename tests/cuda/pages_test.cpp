// Pages of every size behind more keys than are looked up ahead: of one key, of a size that no
// chunk of 16 keys fits, of chunks; windows that begin and end inside of them.
#include "cuda_support.h"
#include "testing/check_case.h"

namespace leanattn::testing {
namespace {

class Pages : public CudaTest {};

struct Dims {
  std::int64_t k, v;
};

CaseSpec spec_of(const Dims& dims, std::int64_t page_size) {
  CaseSpec spec;
  spec.lengths = {9000, 0, 2111, 33};  // a copy warp looks up to 32 · 3 chunks of 16 keys ahead
  spec.q_lens = {1, 1, 1, 1};
  spec.num_kv_heads = 2;
  spec.group_size = 4;
  spec.head_dim = dims.k;
  spec.v_head_dim = dims.v;
  spec.q_type = spec.k_type = spec.v_type = spec.out_type = ElementType::kBFloat16;
  spec.layout = KvLayout::kPagedDense;
  spec.page_size = page_size;
  return spec;
}

void check_plans(const CaseSpec& spec) {
  const Case problem = build_case(spec);
  const Expected expected = expect(problem);
  for (PlanOptions options : cuda_plans()) {
    for (const std::int64_t workers : {0, 1}) {  // the device's, and a single long range
      options.num_workers = workers;
      const Outcome outcome = check_case(problem, expected, options);
      EXPECT_TRUE(outcome.passed && !outcome.refused)
          << outcome.message << "\n  pages of " << spec.page_size << ", " << describe(options);
    }
  }
}

TEST_F(Pages, OfEverySize) {
  for (const Dims& dims : {Dims{64, 64}, Dims{128, 128}, Dims{192, 128}}) {
    for (const std::int64_t page_size : {1, 3, 16, 48, 64}) {
      CaseSpec spec = spec_of(dims, page_size);
      check_plans(spec);
      spec.with_lse = false;  // a kernel that has nothing of it
      check_plans(spec);
    }
  }
}

TEST_F(Pages, InEveryOrderOfHeadsAndTokens) {
  for (const KvOrder order : {KvOrder::kNhd, KvOrder::kHnd, KvOrder::kInterleaved}) {
    for (const std::int64_t page_size : {1, 5, 32}) {
      CaseSpec spec = spec_of({128, 128}, page_size);
      spec.kv_order = order;
      check_plans(spec);
    }
  }
}

TEST_F(Pages, ThatAWindowBeginsAndEndsIn) {
  for (const std::int64_t page_size : {1, 3, 32}) {
    CaseSpec spec = spec_of({64, 64}, page_size);
    spec.rules.window.left = 4099;
    check_plans(spec);
  }
}

}  // namespace
}  // namespace leanattn::testing
