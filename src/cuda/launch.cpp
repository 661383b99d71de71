#include "cuda/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "cuda/cuda_error.h"

namespace leanattn::cuda {
namespace {

/// A kernel may use more than 48 KB of shared memory only where it was told so, once on
/// every device.
void allow_shared_memory(const CompiledKernel& kernel) {
  constexpr std::size_t kMostDevices = 64;
  static std::vector<std::array<std::atomic<bool>, kMostDevices>> allowed(
      compiled_kernels().size());
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const auto row = static_cast<std::size_t>(&kernel - compiled_kernels().data());
  const auto column = static_cast<std::size_t>(device);
  if (column < kMostDevices && allowed[row][column].load(std::memory_order_relaxed)) return;
  int most = 0;
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  check_cuda(cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  std::min(most, kernel.shared_bytes)),
             "cudaFuncSetAttribute");
  if (column < kMostDevices) allowed[row][column].store(true, std::memory_order_relaxed);
}

/// How a kernel is launched.
struct Shape {
  std::int64_t blocks = 1;
  std::int64_t threads = 1;
  int shared_bytes = 0;
  std::int64_t cluster = 1;
};

void launch_kernel(const void* kernel, const Shape& shape, const Call& call, const Stream& stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks), 1, 1);
  config.blockDim = dim3(static_cast<unsigned>(shape.threads), 1, 1);
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  if (stream.overlap != Overlap::kNone) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
  }
  void* arguments[] = {const_cast<Call*>(&call)};
  check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), "launching the kernel");
}

}  // namespace

std::int64_t num_places(const Plan& plan) {
  const Partition& partition = plan.partition;
  const bool in_turn = partition.kind == PartitionKind::kStreamK && plan.kernel.cluster == 1;
  return in_turn ? std::min(partition.num_workers, plan.kernel.num_workers) : partition.num_workers;
}

void launch(const Plan& plan, const Call& call, const CompiledKernel& kernel,
            const Stream& stream) {
  if (call.num_row_blocks == 0 || call.max_q_len == 0) return;  // there is no row
  allow_shared_memory(kernel);
  const std::int64_t cluster = plan.kernel.cluster;
  launch_kernel(kernel.kernel,
                {call.num_places * cluster, kernel.threads, kernel.shared_bytes, cluster}, call,
                stream);
  const bool combines = plan.partition.kind == PartitionKind::kFixedSplit &&
                        plan.partition.num_splits > 1 && !plan.batch_invariant;
  if (!combines) return;
  const std::int64_t tiles = std::int64_t{call.num_row_blocks} * call.num_kv_heads.value();
  launch_kernel(kernel.combine, {tiles, 256, 0, 1}, call, stream);
}

int max_clusters(const CompiledKernel& kernel, int size) {
  allow_shared_memory(kernel);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size), 1, 1);
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads), 1, 1);
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.shared_bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(size);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, kernel.kernel, &config);
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? clusters : 0;
}

int compute_capability(int device) {
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    check_cuda(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
    return value;
  };
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
         attribute(cudaDevAttrComputeCapabilityMinor);
}

int resident_blocks(const CompiledKernel& kernel) {
  allow_shared_memory(kernel);
  int blocks = 0;
  const cudaError_t status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, kernel.kernel, kernel.threads, static_cast<std::size_t>(kernel.shared_bytes));
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? blocks : 0;
}

}  // namespace leanattn::cuda
