// What stands between a case and a device, on a backend that says its memory is a
// device's: copies that lie where a test can look, and mistakes that must be noticed.
#include "testing/device_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "probe_support.h"

namespace leanattn::testing {
namespace {

// The CPU, behind memory that it alone may touch.
class FakeDevice : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] Device::Kind device_kind() const override { return Device::Kind::kDevice; }
  [[nodiscard]] Support supports(const Problem& problem) const override {
    return cpu().supports(on_host(problem));
  }
  [[nodiscard]] Machine machine() const override { return cpu().machine(); }
  [[nodiscard]] Partition stream_k(const Problem& problem, const Kernel& kernel,
                                   std::int64_t num_workers) const override {
    return cpu().stream_k(problem, kernel, num_workers);
  }
  [[nodiscard]] std::int64_t num_output_tiles(const Problem& problem,
                                              const Kernel& kernel) const override {
    return cpu().num_output_tiles(problem, kernel);
  }
  [[nodiscard]] std::size_t workspace_bytes(const Plan& plan) const override {
    return cpu().workspace_bytes(plan);
  }
  void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
           const Stream& stream) const override {
    Plan of_host = plan;
    of_host.problem = on_host(plan.problem);
    cpu().run(of_host, arguments, workspace, stream);
    ++num_runs;
  }

  mutable int num_runs = 0;

 private:
  static const Backend& cpu() { return backend("cpu"); }
  static Problem on_host(Problem problem) {
    problem.device = {};
    return problem;
  }
};

// Makes one mistake after each run.
class FaultyDevice final : public FakeDevice {
 public:
  enum class Fault : std::uint8_t { kInput, kBehindOut, kBehindWorkspace, kOtherBits };
  explicit FaultyDevice(Fault fault) : fault_(fault) {}

  void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
           const Stream& stream) const override {
    FakeDevice::run(plan, arguments, workspace, stream);
    const auto spoil = [](const void* at) {
      *static_cast<std::byte*>(const_cast<void*>(at)) = std::byte{0x5a};
    };
    const auto* out = static_cast<const std::byte*>(arguments.out.data);
    const auto& shape = arguments.out.shape;
    switch (fault_) {
      case Fault::kInput: spoil(arguments.kv.k.data); break;
      case Fault::kBehindOut:
        spoil(out + shape[0] * shape[1] * shape[2] * shape[3] * size_of(arguments.out.type));
        break;
      case Fault::kBehindWorkspace: spoil(workspace.data() + plan.workspace_bytes); break;
      case Fault::kOtherBits:
        if (num_runs % 2 == 0) spoil(out);
        break;
    }
  }

 private:
  Fault fault_;
};

// As leanattn::plan would plan for `device`, which is in no list of backends.
Plan plan_for(const Backend& device, const Case& problem, PlanOptions options) {
  Problem posed = problem_on(device, problem);
  posed.device = {};
  options.backend = "cpu";
  Plan made = plan(posed, options);
  made.backend = &device;
  made.problem.device = {Device::Kind::kDevice, 0};
  return made;
}

TEST(DeviceCases, GiveTheAnswerOfTheCopies) {
  const FakeDevice device;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case problem = make_case(seed);
    const PlanOptions options = draw_options(seed, backend("cpu"));
    const Plan made = plan_for(device, problem, options);
    ASSERT_EQ(run_guarded(problem, made), "") << describe(problem);
    const Comparison comparison = compare(problem, expect(problem), read_output(problem));
    ASSERT_TRUE(comparison.passed) << comparison.worst << '\n' << describe(problem);
  }
  EXPECT_EQ(device.num_runs, 600);
}

TEST(DeviceCases, NothingOfTheHostIsInTheCall) {
  const FakeDevice device;
  CaseSpec spec;
  spec.lengths = {40, 3};
  spec.q_lens = {1, 1};
  spec.layout = KvLayout::kPagedDense;
  spec.kv_order = KvOrder::kInterleaved;
  const Case problem = build_case(spec);
  const DeviceCase copied(problem, device);
  const Arguments& there = copied.arguments();
  const Arguments& here = problem.arguments;
  EXPECT_NE(there.q.data, here.q.data);
  EXPECT_EQ(there.q.device.kind, Device::Kind::kDevice);
  EXPECT_EQ(there.lengths.device.kind, Device::Kind::kDevice);
  // K and V of one buffer are still of one buffer.
  EXPECT_EQ(static_cast<const std::byte*>(there.kv.v.data) -
                static_cast<const std::byte*>(there.kv.k.data),
            static_cast<const std::byte*>(here.kv.v.data) -
                static_cast<const std::byte*>(here.kv.k.data));
}

TEST(DeviceCases, OfAHostAreTheCaseItself) {
  const Case problem = make_case(1);
  const DeviceCase same(problem, backend("cpu"));
  EXPECT_EQ(same.arguments().q.data, problem.arguments.q.data);
  EXPECT_EQ(same.arguments().out.data, problem.arguments.out.data);
}

TEST(DeviceCases, MistakesOfADeviceAreNoticed) {
  CaseSpec spec;
  spec.lengths = {40, 3};
  spec.q_lens = {1, 1};
  const Case problem = build_case(spec);
  using Fault = FaultyDevice::Fault;
  for (const auto& [fault, sentence] :
       {std::pair{Fault::kInput, "an input was written to"},
        std::pair{Fault::kBehindOut, "memory between or behind out was written"},
        std::pair{Fault::kBehindWorkspace, "the canary behind the workspace was overwritten"},
        std::pair{Fault::kOtherBits, "a second run gave other bits"}}) {
    const FaultyDevice device(fault);
    EXPECT_EQ(run_guarded(problem, plan_for(device, problem, {})), sentence);
  }
}

// Device draws stay within what a device has kernels for, whatever else they are.
TEST(DeviceCases, DrawsAreWithinTheLimits) {
  const SpecLimits limits = limits_of(FakeDevice());
  ASSERT_EQ(limits.size(), 14u);
  EXPECT_TRUE(limits_of(backend("cpu")).empty());
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const CaseSpec spec = draw_spec(seed, limits);
    EXPECT_EQ(spec.q_type, spec.k_type);
    EXPECT_EQ(spec.q_type, spec.v_type);
    EXPECT_TRUE(std::ranges::any_of(limits, [&](const TypeAndDims& kind) {
      return kind.type == spec.q_type && kind.head_dim == spec.head_dim &&
             kind.v_head_dim == spec.v_head_dim;
    })) << describe(spec);
  }
}

}  // namespace
}  // namespace leanattn::testing
