// Calls beside and behind each other: two streams with workspaces of their own, and calls
// of one stream that begin before the one ahead has ended.
#include "device_call.h"
#include "spinning_kernel.h"
#include "test_scale.h"

namespace leanattn::testing {
namespace {

class Streams : public CudaTest {};

Plan stream_k_plan(const DeviceCall& call) {
  PlanOptions options;
  options.backend = "cuda";
  options.partition = PartitionChoice::kStreamK;
  return plan(problem_of(call.arguments()), options);
}

CallShape shape_of(std::int64_t capacity, std::uint64_t seed) {
  CallShape shape;
  shape.capacity = capacity;
  shape.seed = seed;
  return shape;
}

TEST_F(Streams, TwoAtOnceWithTheirOwnWorkspaces) {
  const DeviceCall calls[]{{shape_of(8192, 1), {8192, 77, 0}}, {shape_of(4096, 2), {4096, 4000}}};
  const CudaStream streams[2];
  const Plan plans[]{stream_k_plan(calls[0]), stream_k_plan(calls[1])};
  const Workspace workspaces[]{{plans[0], streams[0]}, {plans[1], streams[1]}};
  std::vector<std::byte> alone[2];
  for (int i : {0, 1}) alone[i] = calls[i].run_once(plans[i], workspaces[i], streams[i]);
  for (std::int64_t round = 0; round < scaled(200); ++round) {
    for (int i : {0, 1}) calls[i].poison(streams[i]);
    for (int call = 0; call < 10; ++call) {
      for (int i : {0, 1}) {
        run(plans[i], calls[i].arguments(), workspaces[i].bytes(), streams[i].view());
      }
    }
    for (int i : {0, 1}) ASSERT_EQ(calls[i].results(streams[i]), alone[i]) << "stream " << i;
  }
}

// The call starts beside what makes its workspace ready, but not beside what comes before.
TEST_F(Streams, AFreshWorkspaceBehindWorkThatTheCallReads) {
  const CudaStream stream;
  const std::vector<std::int32_t> lengths{8192, 5};
  const DeviceCall call(shape_of(8192, 1), lengths);
  const Plan made = stream_k_plan(call);
  const Workspace workspace(made, stream);
  const std::vector<std::byte> right = call.run_once(made, workspace, stream);
  const SpinningKernel busy;  // so that launches queue up
  for (std::int64_t round = 0; round < scaled(200); ++round) {
    call.poison(stream);
    call.set_lengths({0, 0}, stream);
    check_cuda(
        cudaMemsetAsync(workspace.bytes().data(), 0xff, workspace.bytes().size(), stream.get()));
    call.queue_lengths(lengths, stream);
    run_fresh(made, call.arguments(), workspace.bytes(), stream.view());
    ASSERT_EQ(call.results(stream), right) << "round " << round;
  }
}

class Overlaps : public Streams, public ::testing::WithParamInterface<Overlap> {};
INSTANTIATE_TEST_SUITE_P(All, Overlaps, ::testing::Values(Overlap::kStart, Overlap::kCache),
                         [](const auto& overlap) {
                           return overlap.param == Overlap::kStart ? "Start" : "Cache";
                         });

// Calls over other caches in turn, all in one workspace.
TEST_P(Overlaps, CallsThatShareAWorkspace) {
  const CudaStream stream;
  const DeviceCall calls[]{{shape_of(8192, 1), {8192, 5}}, {shape_of(8192, 2), {30, 7000}}};
  const Plan made = stream_k_plan(calls[0]);
  const Workspace workspace(made, stream);
  std::vector<std::byte> right[2];
  for (int i : {0, 1}) right[i] = calls[i].run_once(made, workspace, stream);
  for (std::int64_t round = 0; round < scaled(100); ++round) {
    for (int i : {0, 1}) calls[i].poison(stream);
    for (int repeat = 0; repeat < 20; ++repeat) {
      for (int i : {0, 1}) {
        run(made, calls[i].arguments(), workspace.bytes(), stream.view(GetParam()));
      }
    }
    for (int i : {0, 1}) ASSERT_EQ(calls[i].results(stream), right[i]) << "round " << round;
  }
}

// Each call's queries are what the one ahead of it wrote, as from layer to layer.
TEST_P(Overlaps, QueriesThatTheCallAheadWrites) {
  const CudaStream stream;
  const DeviceCall call(shape_of(8192, 1), {8192, 600, 1, 0});
  const Plan made = stream_k_plan(call);
  const Workspace workspace(made, stream);
  const DeviceArray first_queries(call.q().content(stream.get()));
  const DeviceArray other(call.q().size());
  const auto chain = [&](Overlap overlap) {
    check_cuda(cudaMemcpyAsync(call.q().data(), first_queries.data(), first_queries.size(),
                               cudaMemcpyDeviceToDevice, stream.get()));
    Arguments step[]{call.arguments(), call.arguments()};
    step[0].out.data = other.data();  // from q to other, and back
    step[1].q.data = other.data();
    step[1].out.data = call.q().data();
    other.fill(0xff, stream.get());
    call.poison(stream);
    for (int layer = 0; layer < 64; ++layer) {
      run(made, step[layer % 2], workspace.bytes(), stream.view(overlap));
    }
    std::vector<std::byte> bytes = call.q().content(stream.get());
    const std::vector<std::byte> lse = call.lse().content(stream.get());
    bytes.insert(bytes.end(), lse.begin(), lse.end());
    return bytes;
  };
  const std::vector<std::byte> right = chain(Overlap::kNone);
  for (std::int64_t round = 0; round < scaled(50); ++round) {
    ASSERT_EQ(chain(GetParam()), right) << "round " << round;
  }
}

// Keys and lengths that the work ahead writes: kStart waits for it.
TEST_F(Streams, KStartWaitsForKeysAndLengths) {
  const CudaStream stream;
  const DeviceCall call(shape_of(8192, 1), {8192, 600});
  const Plan made = stream_k_plan(call);
  const Workspace workspace(made, stream);
  const std::vector<std::byte> right = call.run_once(made, workspace, stream);
  auto* lengths = const_cast<void*>(call.arguments().lengths.data);
  auto* values = const_cast<void*>(call.arguments().kv.v.data);
  const std::size_t value_bytes = std::size_t{2} * 8192 * 2 * 128 * 2;
  const DeviceArray values_kept(value_bytes);
  const DeviceArray lengths_kept(std::vector<std::int32_t>{8192, 600});
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.get()));
  };
  copy(values_kept.data(), values, value_bytes);
  for (std::int64_t round = 0; round < scaled(50); ++round) {
    call.poison(stream);
    check_cuda(cudaMemsetAsync(lengths, 0, 8, stream.get()));
    check_cuda(cudaMemsetAsync(values, 0xff, value_bytes, stream.get()));
    copy(lengths, lengths_kept.data(), 8);
    copy(values, values_kept.data(), value_bytes);
    run(made, call.arguments(), workspace.bytes(), stream.view(Overlap::kStart));
    ASSERT_EQ(call.results(stream), right) << "round " << round;
  }
}

}  // namespace
}  // namespace leanattn::testing
