// The same bits on every call, with other work on the device beside it.
#include "device_call.h"
#include "spinning_kernel.h"
#include "test_scale.h"

namespace leanattn::testing {
namespace {

class Repeats : public CudaTest {};

void expect_same_bits(const DeviceCall& call, const PlanOptions& options, std::int64_t times) {
  const CudaStream stream;
  const Plan made = plan(problem_of(call.arguments()), options);
  const Workspace workspace(made, stream);
  // The first call also loads the kernel, which a spinning one would hold up.
  const std::vector<std::byte> first = call.run_once(made, workspace, stream);
  const SpinningKernel beside;
  for (std::int64_t i = 0; i < times; ++i) {
    ASSERT_EQ(call.run_once(made, workspace, stream), first)
        << "call " << i << ", " << explain(made);
  }
  EXPECT_TRUE(beside.running()) << "the other kernel ended before the calls did";
}

TEST_F(Repeats, GiveTheSameBitsBesideASpinningKernel) {
  CallShape shape;
  shape.capacity = 8192;
  const DeviceCall call(shape, {8192, 3, 0, 1025});
  for (const PlanOptions& options : cuda_plans()) {
    const bool of_interest = options.partition == PartitionChoice::kStreamK;
    expect_same_bits(call, options, scaled(of_interest ? 10'000 : 300));
  }
}

TEST_F(Repeats, GiveTheSameBitsWithOneHeadThatManyWorkersShare) {
  CallShape shape;
  shape.num_kv_heads = 1;
  shape.capacity = 65'536;
  const DeviceCall call(shape, {65'536});
  PlanOptions options;
  options.backend = "cuda";
  options.partition = PartitionChoice::kStreamK;
  expect_same_bits(call, options, scaled(10'000));
}

TEST_F(Repeats, OneTileIsOneSplit) {
  for (const std::int64_t page_size : {0, 16}) {
    CallShape shape;
    shape.capacity = 16'384;
    shape.page_size = page_size;
    const DeviceCall call(shape, {16'384, 0, 1, 5000});
    for (const bool batch_invariant : {false, true}) {
      const CudaStream stream;
      std::vector<std::byte> bits[2];
      for (const bool split : {false, true}) {
        PlanOptions options;
        options.backend = "cuda";
        options.partition = split ? PartitionChoice::kFixedSplit : PartitionChoice::kOneTile;
        options.num_splits = split ? 1 : 0;
        options.batch_invariant = batch_invariant;
        const Plan made = plan(problem_of(call.arguments()), options);
        bits[split] = call.run_once(made, Workspace(made, stream), stream);
      }
      EXPECT_EQ(bits[0], bits[1]) << "page size " << page_size;
    }
  }
}

}  // namespace
}  // namespace leanattn::testing
