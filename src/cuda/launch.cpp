#include "cuda/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "cuda/bulk_copies.h"
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
  const auto allow = [&](const void* function, int bytes) {
    check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    std::min(most, bytes)),
               "cudaFuncSetAttribute");
  };
  allow(kernel.kernel, kernel.shared_bytes(kernel.most_warps));
  if (compute_capability(device) >= 90) allow(kernel.bulk_kernel, kernel.bulk_shared_bytes);
  if (column < kMostDevices) allowed[row][column].store(true, std::memory_order_relaxed);
}

/// How a kernel is launched.
struct Shape {
  std::int64_t blocks = 1;
  std::int64_t threads = 1;
  int shared_bytes = 0;
  std::int64_t cluster = 1;
};

void launch_kernel(const void* kernel, const Shape& shape, const Call& call, KvMaps* maps,
                   const Stream& stream) {
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
  void* arguments[] = {const_cast<Call*>(&call), maps};
  check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), "launching the kernel");
}

}  // namespace

void launch(const Plan& plan, Call call, const CompiledKernel& kernel, const KvView& kv,
            const Stream& stream) {
  if (call.num_row_blocks == 0 || call.max_q_len == 0) return;  // there is no row
  allow_shared_memory(kernel);
  const std::int64_t blocks = plan.partition.num_workers;
  if (plan.kernel.bulk_copies && bulk_copies_suit(kv)) {
    call.rows_together = rows_together(kv, kernel.bulk_keys);
    KvMaps maps = make_kv_maps(kv, call.rows_together);
    const std::int64_t cluster = plan.kernel.cluster;
    launch_kernel(kernel.bulk_kernel,
                  {blocks * cluster, kernel.bulk_threads, kernel.bulk_shared_bytes, cluster}, call,
                  &maps, stream);
  } else {
    const int warps = static_cast<int>(plan.kernel.threads / 32);
    launch_kernel(kernel.kernel, {blocks, plan.kernel.threads, kernel.shared_bytes(warps)}, call,
                  nullptr, stream);
  }
  const bool combines = plan.partition.kind == PartitionKind::kFixedSplit &&
                        plan.partition.num_splits > 1 && !plan.batch_invariant;
  if (!combines) return;
  const std::int64_t tiles = std::int64_t{call.num_row_blocks} * call.num_kv_heads.value();
  launch_kernel(kernel.combine, {tiles, 256, 0}, call, nullptr, stream);
}

int max_clusters(const CompiledKernel& kernel, int size) {
  allow_shared_memory(kernel);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size), 1, 1);
  config.blockDim = dim3(static_cast<unsigned>(kernel.bulk_threads), 1, 1);
  config.dynamicSmemBytes = static_cast<std::size_t>(kernel.bulk_shared_bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(size);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status = cudaOccupancyMaxActiveClusters(&clusters, kernel.bulk_kernel, &config);
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

int resident_blocks(const CompiledKernel& kernel, int warps) {
  allow_shared_memory(kernel);
  int blocks = 0;
  const cudaError_t status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, kernel.kernel, 32 * warps, static_cast<std::size_t>(kernel.shared_bytes(warps)));
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? blocks : 0;
}

}  // namespace leanattn::cuda
