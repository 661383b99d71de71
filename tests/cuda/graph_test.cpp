// A graph captured at one length serves every other: lengths are read on the device when
// it executes.
#include <limits>

#include "device_call.h"

namespace leanattn::testing {
namespace {

class Graphs : public CudaTest {};

// One captured call.
class CapturedRun {
 public:
  CapturedRun(const DeviceCall& call, const Plan& plan, const Workspace& workspace,
              const CudaStream& stream) {
    stream.wait();
    check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    run(plan, call.arguments(), workspace.bytes(), stream.view());
    check_cuda(cudaStreamEndCapture(stream.get(), &graph_));
    check_cuda(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~CapturedRun() {
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  CapturedRun(const CapturedRun&) = delete;
  CapturedRun& operator=(const CapturedRun&) = delete;

  void replay(const CudaStream& stream) const {
    check_cuda(cudaGraphLaunch(executable_, stream.get()));
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

void expect_empty(const DeviceCall& call, const CudaStream& stream) {
  for (const auto bits : call.out().content<std::uint16_t>(stream.get())) ASSERT_EQ(bits, 0);
  for (const float lse : call.lse().content<float>(stream.get())) {
    ASSERT_EQ(lse, -std::numeric_limits<float>::infinity());
  }
}

TEST_F(Graphs, CapturedAtOneLengthAndReplayedAtOthers) {
  constexpr std::int32_t kMost = 524'288;
  CallShape shape;
  shape.num_kv_heads = 1;
  shape.capacity = kMost;
  if (!device_has(std::size_t{4} * kMost * 128 * 2)) GTEST_SKIP() << "too little device memory";
  for (const std::int64_t page_size : {std::int64_t{0}, std::int64_t{64}}) {
    shape.page_size = page_size;
    const CudaStream stream;
    const DeviceCall call(shape, {1000, 333});
    const Problem problem = problem_of(call.arguments());
    ASSERT_EQ(problem.max_kv_len, kMost);
    for (const PlanOptions& options : cuda_plans()) {
      const Plan made = plan(problem, options);
      const Workspace captured_workspace(made, stream);
      const Workspace eager_workspace(made, stream);
      call.set_lengths({1000, 333}, stream);
      const CapturedRun captured(call, made, captured_workspace, stream);
      for (const std::int32_t n : {0, 1, 1000, kMost, 2, 0, 1000}) {
        call.set_lengths({n, n / 3}, stream);
        call.poison(stream);
        captured.replay(stream);
        const std::vector<std::byte> replayed = call.results(stream);
        if (n == 0) expect_empty(call, stream);
        ASSERT_EQ(replayed, call.run_once(made, eager_workspace, stream))
            << n << " keys, " << explain(made);
      }
    }
  }
}

// A replay finds the workspace as the one ahead of it left it.
TEST_F(Graphs, ReplayedManyTimesWithoutWaitingBetween) {
  CallShape shape;
  shape.capacity = 4096;
  const CudaStream stream;
  const DeviceCall call(shape, {4096, 1, 0, 777});
  PlanOptions options;
  options.backend = "cuda";
  options.partition = PartitionChoice::kStreamK;
  const Plan made = plan(problem_of(call.arguments()), options);
  const Workspace workspace(made, stream);
  const std::vector<std::byte> eager = call.run_once(made, workspace, stream);
  const CapturedRun captured(call, made, workspace, stream);
  call.poison(stream);
  for (int i = 0; i < 1000; ++i) captured.replay(stream);
  EXPECT_EQ(call.results(stream), eager);
}

}  // namespace
}  // namespace leanattn::testing
