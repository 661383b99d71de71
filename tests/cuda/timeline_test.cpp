// The stamps of thread blocks that profiling asks for.
#include "cuda/timeline.h"

#include "device_call.h"
#include "leanattn/error.h"

namespace leanattn::testing {
namespace {

TEST(Timeline, IsOffUnlessAskedForAndRefusesMoreBlocksThanItHasRoomFor) {
  EXPECT_EQ(cuda::timeline_for(1 << 20), nullptr);
  std::int64_t memory[2 * 4] = {};
  cuda::set_timeline(memory, 4);
  EXPECT_EQ(cuda::timeline_for(4), memory);
  EXPECT_THROW((void)cuda::timeline_for(5), InvalidArgument);
  cuda::set_timeline(nullptr, 0);
  EXPECT_EQ(cuda::timeline_for(5), nullptr);
}

class TimelineOnDevice : public CudaTest {};

TEST_F(TimelineOnDevice, EveryBlockBeginsAndEnds) {
  const CudaStream stream;
  const DeviceCall call({}, {1000, 0, 17});
  for (const PlanOptions& options : cuda_plans()) {
    const Plan made = plan(problem_of(call.arguments()), options);
    const Workspace workspace(made, stream);
    const auto blocks = static_cast<std::size_t>(made.partition.num_workers * made.kernel.cluster);
    const DeviceArray stamps(std::vector<std::int64_t>(2 * blocks, 0));
    cuda::set_timeline(reinterpret_cast<std::int64_t*>(stamps.data()),
                       static_cast<std::int64_t>(blocks));
    const std::vector<std::byte> timed = call.run_once(made, workspace, stream);
    cuda::set_timeline(nullptr, 0);
    const auto read = stamps.content<std::int64_t>(stream.get());
    for (std::size_t i = 0; i < blocks; ++i) {
      ASSERT_GT(read[2 * i], 0) << "block " << i;
      ASSERT_GE(read[2 * i + 1], read[2 * i]) << "block " << i;
    }
    EXPECT_EQ(call.run_once(made, workspace, stream), timed);
  }
}

}  // namespace
}  // namespace leanattn::testing
