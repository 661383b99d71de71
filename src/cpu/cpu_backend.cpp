#include "cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>

#include "core/schedule.h"
#include "cpu/engine.h"
#include "cpu/isa.h"
#include "leanattn/error.h"

namespace leanattn::cpu {
namespace {

// What the `auto` policy weighs with: the order of magnitude of a core of today (see
// bench/results). They decide whether a small problem is worth a second thread.
constexpr double kWorkerBytesPerSecond = 20e9;
constexpr double kMachineBytesPerSecond = 40e9;
constexpr double kWorkerFlopsPerSecond = 80e9;
constexpr double kStartSeconds = 2e-6;
constexpr double kMergeSeconds = 0.2e-6;

/// Keys of a LeanTile, and of one whose partial stands alone (batch_invariant).
constexpr std::int64_t kTileN = 64;
constexpr std::int64_t kTileNInvariant = 2 * kBlock;

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }
  [[nodiscard]] Device::Kind device_kind() const override { return Device::Kind::kHost; }

  [[nodiscard]] Support supports(const Problem& problem) const override {
    if (problem.device.kind != Device::Kind::kHost) {
      return {"backend cpu reads host memory; the tensors are in device memory", {}};
    }
    Kernel kernel;
    kernel.name =
        concat(instruction_set().name, " q ", leanattn::name_of(problem.q_type), " k ",
               leanattn::name_of(problem.k_type), " v ", leanattn::name_of(problem.v_type));
    kernel.tile_m = std::clamp<std::int64_t>(problem.packed_rows(problem.max_q_len), 1, kMaxRows);
    kernel.tile_n = kTileN;
    kernel.tile_n_invariant = kTileNInvariant;
    kernel.scratch_bytes = scratch_bytes(problem, kernel.tile_m);
    return {{}, kernel};
  }

  [[nodiscard]] Machine machine() const override {
    Machine machine;
    machine.num_workers = omp_get_max_threads();
    machine.description = concat(instruction_set().name, ", ", machine.num_workers, " threads");
    machine.bytes_per_second = kMachineBytesPerSecond;
    machine.worker_bytes_per_second = kWorkerBytesPerSecond;
    machine.worker_flops_per_second = kWorkerFlopsPerSecond;
    machine.start_seconds = kStartSeconds;
    machine.merge_seconds = kMergeSeconds;
    return machine;
  }

  [[nodiscard]] Partition stream_k(const Problem&, const Kernel&,
                                   std::int64_t num_workers) const override {
    const std::int64_t workers = num_workers > 0 ? num_workers : omp_get_max_threads();
    return {PartitionKind::kStreamK, 1, workers, Order::kHeadByHead};
  }

  [[nodiscard]] std::int64_t num_output_tiles(const Problem& problem,
                                              const Kernel& kernel) const override {
    return max_output_tiles(problem, kernel.tile_m);
  }

  [[nodiscard]] std::size_t workspace_bytes(const Plan& plan) const override {
    return workspace_layout(plan).bytes;
  }

  void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
           const Stream&) const override {
    begin_call(plan, arguments, workspace.data());
    const int threads = static_cast<int>(plan.num_threads);
    if (threads == 1) {
      work_on_call(plan, arguments, workspace.data(), 0);
      return;
    }
#pragma omp parallel num_threads(threads)
    {
      // OpenMP may give fewer threads than asked for; nobody waits, so one may do
      // the work of several.
      for (int t = omp_get_thread_num(); t < threads; t += omp_get_num_threads()) {
        work_on_call(plan, arguments, workspace.data(), t);
      }
    }
  }

  void begin(const Plan& plan, const Arguments& arguments,
             std::span<std::byte> workspace) const override {
    begin_call(plan, arguments, workspace.data());
  }

  void work(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
            std::int64_t thread) const override {
    work_on_call(plan, arguments, workspace.data(), thread);
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace leanattn::cpu
