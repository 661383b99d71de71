#include "cuda/cuda_backend.h"

#include <algorithm>
#include <new>

#include "cuda/clear_counters.h"
#include "cuda/cuda_error.h"
#include "cuda/launch.h"
#include "cuda/make_call.h"
#include "cuda/shares.h"
#include "cuda/tuning.h"
#include "cuda/workspace.h"

namespace leanattn::cuda {
namespace {

constexpr std::int64_t kMostInt32 = (std::int64_t{1} << 31) - (std::int64_t{1} << 17);
constexpr std::int64_t kMostWorkers = 32768;  // of stream_k: shares are dealt in 32 bits

/// Keys of a LeanTile whose partial stands alone (batch_invariant).
constexpr std::int64_t kTileNInvariant = 1024;

// What the `auto` policy weighs with; an H200's orders of magnitude (bench/results).
constexpr double kBytesPerSecond = 4.5e12;
constexpr double kWorkerBytesPerSecond = 90e9;
constexpr double kWorkerFlopsPerSecond = 2e12;
constexpr double kMergeSeconds = 1e-6;

struct Facts {
  cudaError_t status = cudaSuccess;
  int num_devices = 0;
};

const Facts& facts() {
  static const Facts found = [] {
    Facts facts;
    facts.status = cudaGetDeviceCount(&facts.num_devices);
    if (facts.status != cudaSuccess) static_cast<void>(cudaGetLastError());
    return facts;
  }();
  return found;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

double kv_bytes(const Problem& problem) {
  return static_cast<double>(problem.batch * problem.num_kv_heads) *
         static_cast<double>(problem.max_kv_len) *
         static_cast<double>((problem.head_dim + problem.v_head_dim) * size_of(problem.k_type));
}

/// Why the kernels cannot take a problem's types or head dims; empty if they can.
std::string refusal(const Problem& problem) {
  if (problem.device.kind != Device::Kind::kDevice) {
    return "backend cuda reads device memory; the tensors are in host memory";
  }
  if (problem.device.index < 0 || problem.device.index >= facts().num_devices) {
    return concat("the device of the tensors is ", problem.device.index, "; there are ",
                  facts().num_devices, " devices, from 0 on");
  }
  const ElementType type = problem.q_type;
  if (type != ElementType::kFloat16 && type != ElementType::kBFloat16) {
    return concat("backend cuda computes with f16 and bf16; q_type is ", leanattn::name_of(type));
  }
  if (problem.k_type != type || problem.v_type != type) {
    return concat("backend cuda takes k and v of q's type, which is ", leanattn::name_of(type),
                  "; k_type is ", leanattn::name_of(problem.k_type), " and v_type is ",
                  leanattn::name_of(problem.v_type));
  }
  if (find_kernel(problem, 1) == nullptr) {
    return concat("backend cuda has no kernel for head_dim ", problem.head_dim, " and v_head_dim ",
                  problem.v_head_dim, "; it has ", head_dims_text(type));
  }
  return {};
}

/// Why a problem is too large for the kernels' 32-bit indices; empty if it is not.
std::string size_refusal(const Problem& problem, std::int64_t tile_m, std::int64_t tile_n) {
  if (problem.max_kv_len > kMostInt32) {
    return concat("max_kv_len is ", problem.max_kv_len, "; backend cuda takes at most ",
                  kMostInt32);
  }
  if (problem.num_queries > kMostInt32 || problem.page_size > kMostInt32 ||
      problem.packed_rows(problem.max_q_len) > kMostInt32) {
    return concat("num_queries is ", problem.num_queries, ", the packed rows of a sequence ",
                  problem.packed_rows(problem.max_q_len), " and page_size ", problem.page_size,
                  "; backend cuda takes at most ", kMostInt32, " of each");
  }
  const double tiles =
      static_cast<double>(problem.num_kv_heads) * static_cast<double>(problem.batch) *
      static_cast<double>(ceil_div(problem.packed_rows(problem.max_q_len), tile_m));
  const double lean_tiles = tiles * static_cast<double>(ceil_div(problem.max_kv_len, tile_n) + 1);
  if (lean_tiles > static_cast<double>(kMostInt32)) {
    return concat("the problem has up to ", lean_tiles, " LeanTiles; backend cuda takes at most ",
                  kMostInt32);
  }
  return {};
}

/// The kernel of a problem that is not refused, for the current device: one for many rows
/// only where it finds room.
const CompiledKernel& kernel_for(const Problem& problem) {
  const CompiledKernel* kernel = find_kernel(problem, problem.packed_rows(problem.max_q_len));
  if (kernel->is_wide() && resident_blocks(*kernel) == 0) {
    kernel = find_kernel(problem, problem.v_head_dim <= 128 ? 32 : 16);
  }
  return *kernel;
}

ShareCounts share_counts(const Problem& problem, const Kernel& kernel) {
  return {problem.num_kv_heads, std::max<std::int64_t>(num_row_blocks(problem, kernel), 1),
          kv_bytes(problem), enough_blocks(problem, kernel.tile_m, kv_bytes(problem))};
}

/// Blocks of a worker, up to as many as tuning.h says.
std::int64_t cluster_for(const Problem& problem, const CompiledKernel& compiled,
                         const Kernel& kernel, std::int64_t most) {
  if (!block_layout(compiled).clusters) return 1;
  return cluster_size(share_counts(problem, kernel), most, [&](std::int64_t size) {
    return max_clusters(compiled, static_cast<int>(size));
  });
}

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda"; }
  [[nodiscard]] Device::Kind device_kind() const override { return Device::Kind::kDevice; }

  [[nodiscard]] std::string unavailable() const override {
    if (facts().status != cudaSuccess) {
      return concat("backend cuda finds no device: ", cudaGetErrorString(facts().status));
    }
    return facts().num_devices > 0 ? std::string()
                                   : std::string("backend cuda finds no device: there is none");
  }

  [[nodiscard]] Support supports(const Problem& problem) const override {
    std::string why_not = unavailable();
    if (why_not.empty()) why_not = refusal(problem);
    if (!why_not.empty()) return {why_not, {}};
    const CurrentDevice current(problem.device.index);
    const CompiledKernel& compiled = kernel_for(problem);
    LaunchShape shape = launch_shape({compute_capability(problem.device.index), compiled.v_head_dim,
                                      compiled.row_tiles, kv_bytes(problem)});
    const int resident = resident_blocks(compiled);
    if (resident == 0) {
      return {concat("backend cuda finds no room for its kernel of head_dim ", problem.head_dim,
                     " on this device: it was not compiled for compute capability ",
                     compute_capability(problem.device.index), ", or shared memory is too small"),
              {}};
    }
    Kernel kernel;
    kernel.name = concat(
        "cuda ", leanattn::name_of(compiled.type), " ", compiled.head_dim,
        compiled.head_dim == compiled.v_head_dim ? std::string() : concat("·", compiled.v_head_dim),
        ", ", compiled.tile_m(), " rows");
    kernel.tile_m = compiled.tile_m();
    kernel.tile_n = shape.tile_n;
    kernel.tile_n_invariant = kTileNInvariant;
    kernel.threads = block_layout(compiled).threads;
    kernel.num_workers =
        std::int64_t{attribute(cudaDevAttrMultiProcessorCount, problem.device.index)} *
        (compiled.is_wide() ? resident : std::min(shape.blocks_per_sm, resident));
    kernel.cluster = cluster_for(problem, compiled, kernel, shape.cluster);
    why_not = size_refusal(problem, kernel.tile_m, std::min(kernel.tile_n, kTileNInvariant));
    return {why_not, kernel};
  }

  [[nodiscard]] Machine machine() const override {
    Machine machine;
    machine.description = unavailable();
    if (!machine.description.empty()) return machine;
    int device = 0;
    check_cuda(cudaGetDevice(&device), "cudaGetDevice");
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    machine.description =
        concat(properties.name, ", ", properties.multiProcessorCount, " SMs, compute capability ",
               properties.major, ".", properties.minor);
    machine.num_workers = properties.multiProcessorCount;
    machine.bytes_per_second = kBytesPerSecond;
    machine.worker_bytes_per_second = kWorkerBytesPerSecond;
    machine.worker_flops_per_second = kWorkerFlopsPerSecond;
    machine.merge_seconds = kMergeSeconds;
    return machine;
  }

  [[nodiscard]] Partition stream_k(const Problem& problem, const Kernel& kernel,
                                   std::int64_t num_workers) const override {
    const std::int64_t heads = problem.num_kv_heads;
    const auto partition = [](std::int64_t workers, Order order) {
      return Partition{PartitionKind::kStreamK, 1, workers, order};
    };
    if (num_workers > 0) {
      check(num_workers <= kMostWorkers, "num_workers is ", num_workers,
            "; backend cuda takes at most ", kMostWorkers);
      return partition(num_workers,
                       num_workers % heads == 0 ? Order::kHeadSynchronous : Order::kHeadByHead);
    }
    const std::int64_t resident =
        kernel.cluster == 1
            ? kernel.num_workers
            : max_clusters(*find_kernel(problem, kernel.tile_m), static_cast<int>(kernel.cluster));
    const std::int64_t shares =
        shares_of_head(share_counts(problem, kernel), kernel.cluster, resident);
    return shares == 0 ? partition(resident, Order::kHeadByHead)
                       : partition(shares * heads, Order::kHeadSynchronous);
  }

  [[nodiscard]] std::int64_t num_output_tiles(const Problem& problem,
                                              const Kernel& kernel) const override {
    return num_row_blocks(problem, kernel) * problem.num_kv_heads;
  }

  [[nodiscard]] std::size_t workspace_bytes(const Plan& plan) const override {
    check(plan.partition.num_workers <= kMostInt32, "the partition has ",
          plan.partition.num_workers, " workers; backend cuda takes at most ", kMostInt32);
    check(plan.partition.num_splits <= kMostWorkers, "num_splits is ", plan.partition.num_splits,
          "; backend cuda takes at most ", kMostWorkers);
    return workspace_of(plan).bytes;
  }

  void initialise(const Plan& plan, std::span<std::byte> workspace,
                  const Stream& stream) const override {
    const std::int64_t count = workspace_of(plan).num_counters;
    if (count == 0) return;
    const CurrentDevice current(plan.problem.device.index);
    check_cuda(clear_counters(reinterpret_cast<std::uint32_t*>(workspace.data()), count,
                              static_cast<cudaStream_t>(stream.handle)),
               "clearing the workspace's counters");
  }

  void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
           const Stream& stream) const override {
    const CurrentDevice current(plan.problem.device.index);
    const Problem& problem = plan.problem;
    const CompiledKernel* kernel = find_kernel(problem, plan.kernel.tile_m);
    launch(plan, make_call(plan, arguments, workspace, stream), *kernel, stream);
  }

  /// The call starts beside the clearing of the counters, which nothing of the caller's is
  /// written by and which comes after all that is.
  void run_fresh(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
                 const Stream& stream) const override {
    if (workspace_of(plan).num_counters == 0) {
      run(plan, arguments, workspace, stream);
      return;
    }
    initialise(plan, workspace, stream);
    run(plan, arguments, workspace, {stream.handle, Overlap::kCache});
  }

  [[nodiscard]] std::byte* allocate(std::size_t bytes, const Stream& stream) const override {
    void* memory = nullptr;
    const cudaError_t status = cudaMallocAsync(&memory, std::max<std::size_t>(bytes, 1),
                                               static_cast<cudaStream_t>(stream.handle));
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw std::bad_alloc();
    }
    check_cuda(status, "cudaMallocAsync");
    return static_cast<std::byte*>(memory);
  }

  void release(std::byte* memory, const Stream& stream) const noexcept override {
    static_cast<void>(cudaFreeAsync(memory, static_cast<cudaStream_t>(stream.handle)));
  }

  void copy(void* to, const void* from, std::size_t bytes, const Stream& stream) const override {
    const auto queue = static_cast<cudaStream_t>(stream.handle);
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue), "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(queue), "cudaStreamSynchronize");
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace leanattn::cuda
