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
  const int wanted = std::min(most, kernel.shared_bytes(kernel.most_warps));
  check_cuda(cudaFuncSetAttribute(kernel.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  wanted),
             "cudaFuncSetAttribute");
  if (column < kMostDevices) allowed[row][column].store(true, std::memory_order_relaxed);
}

void launch_kernel(const void* kernel, std::int64_t blocks, std::int64_t threads, int shared_bytes,
                   const Call& call, const Stream& stream, bool overlap) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks), 1, 1);
  config.blockDim = dim3(static_cast<unsigned>(threads), 1, 1);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = static_cast<cudaStream_t>(stream.handle);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = overlap ? 1 : 0;
  void* arguments[] = {const_cast<Call*>(&call)};
  check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), "launching the kernel");
}

}  // namespace

void launch(const Plan& plan, const Call& call, const CompiledKernel& kernel,
            const Stream& stream) {
  if (call.num_row_blocks == 0 || call.max_q_len == 0) return;  // there is no row
  allow_shared_memory(kernel);
  const int warps = static_cast<int>(plan.kernel.threads / 32);
  const bool overlap = stream.overlap != Overlap::kNone;
  launch_kernel(kernel.kernel, plan.partition.num_workers, plan.kernel.threads,
                kernel.shared_bytes(warps), call, stream, overlap);
  const bool combines = plan.partition.kind == PartitionKind::kFixedSplit &&
                        plan.partition.num_splits > 1 && !plan.batch_invariant;
  if (!combines) return;
  const std::int64_t tiles = std::int64_t{call.num_row_blocks} * call.num_kv_heads;
  launch_kernel(kernel.combine, tiles, 256, 0, call, stream, overlap);
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
