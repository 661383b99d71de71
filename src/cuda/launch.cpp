#include "cuda/launch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "cuda/cuda_error.h"

namespace leanattn::cuda {
namespace {

/// Which layout the code has that runs `kernel` on the current device; −1: there is no code.
int layout_compiled(const CompiledKernel& kernel) {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel.any.contiguous);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    static_cast<void>(cudaGetLastError());
    return -1;
  }
  check_cuda(status, "cudaFuncGetAttributes");
  return block_layout_of(attributes.ptxVersion);
}

/// Looks up the layout, and lets the kernel have its shared memory: more than 48 KB it may use
/// only where it was told so.
const BlockLayout* prepared_layout(const CompiledKernel& kernel) {
  static constexpr BlockLayout kNone;
  const int index = layout_compiled(kernel);
  const BlockLayout& layout = index < 0 ? kNone : kernel.layouts[static_cast<std::size_t>(index)];
  if (layout.threads == 0) return &kNone;
  int device = 0;
  int most = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
             "cudaDeviceGetAttribute");
  if (layout.shared_bytes > most) return &kNone;
  for (const KernelCode& code : {kernel.any, kernel.common_stream_k, kernel.common_whole_tiles}) {
    for (const void* function : {code.contiguous, code.paged}) {
      if (function == nullptr) continue;
      check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      layout.shared_bytes),
                 "cudaFuncSetAttribute");
    }
  }
  return &layout;
}

/// How a kernel is launched.
struct Shape {
  std::int64_t blocks = 1;
  std::int64_t threads = 1;
  int shared_bytes = 0;
  std::int64_t cluster = 1;
};

/// The kernel that has least of what `call` does not need.
const void* function_for(const CompiledKernel& kernel, const Call& call) {
  const bool stream_k = call.kind == PartitionKind::kStreamK;
  const KernelCode& common = stream_k ? kernel.common_stream_k : kernel.common_whole_tiles;
  bool is_common = common.contiguous != nullptr;
  for_each_common_condition(call, stream_k, [&](bool holds) { is_common = is_common && holds; });
  const KernelCode& code = is_common ? common : kernel.any;
  return call.layout == KvLayout::kContiguous ? code.contiguous : code.paged;
}

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

/// What the driver says of clusters, which takes it longer than a call.
int ask_max_clusters(const CompiledKernel& kernel, int size) {
  const BlockLayout& layout = block_layout(kernel);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size), 1, 1);
  config.blockDim = dim3(static_cast<unsigned>(layout.threads), 1, 1);
  config.dynamicSmemBytes = static_cast<std::size_t>(layout.shared_bytes);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(size);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  const cudaError_t status =
      cudaOccupancyMaxActiveClusters(&clusters, kernel.any.contiguous, &config);
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? clusters : 0;
}

}  // namespace

const BlockLayout& block_layout(const CompiledKernel& kernel) {
  constexpr std::size_t kMostDevices = 64;
  static std::vector<std::array<std::atomic<const BlockLayout*>, kMostDevices>> known(
      compiled_kernels().size());
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const auto row = static_cast<std::size_t>(&kernel - compiled_kernels().data());
  const auto column = static_cast<std::size_t>(device);
  if (column >= kMostDevices) return *prepared_layout(kernel);
  const BlockLayout* layout = known[row][column].load(std::memory_order_acquire);
  if (layout == nullptr) {
    layout = prepared_layout(kernel);
    known[row][column].store(layout, std::memory_order_release);
  }
  return *layout;
}

void launch(const Plan& plan, const Call& call, const CompiledKernel& kernel,
            const Stream& stream) {
  if (call.num_row_blocks == 0 || call.max_q_len == 0) return;  // there is no row
  const BlockLayout& layout = block_layout(kernel);
  const std::int64_t cluster = plan.kernel.cluster;
  launch_kernel(function_for(kernel, call),
                {call.num_places * cluster, layout.threads, layout.shared_bytes, cluster}, call,
                stream);
  const bool combines = plan.partition.kind == PartitionKind::kFixedSplit &&
                        plan.partition.num_splits > 1 && !plan.batch_invariant;
  if (!combines) return;
  const std::int64_t tiles = std::int64_t{call.num_row_blocks} * call.num_kv_heads.value();
  launch_kernel(kernel.combine, {tiles, 256, 0, 1}, call, stream);
}

int max_clusters(const CompiledKernel& kernel, int size) {
  if (!block_layout(kernel).clusters) return 0;
  static std::mutex mutex;
  static std::map<std::tuple<const CompiledKernel*, int, int>, int> known;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = known.try_emplace({&kernel, size, device});
  if (is_new) place->second = ask_max_clusters(kernel, size);
  return place->second;
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
  const BlockLayout& layout = block_layout(kernel);
  if (layout.threads == 0) return 0;
  int blocks = 0;
  const cudaError_t status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.any.contiguous, layout.threads,
                                                    static_cast<std::size_t>(layout.shared_bytes));
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status == cudaSuccess ? blocks : 0;
}

}  // namespace leanattn::cuda
