// What a backend is: four answers (name, supports, machine, run) behind one
// interface, and the ordered list of those in this build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "leanattn/partition.h"
#include "leanattn/problem.h"
#include "leanattn/stream.h"

namespace leanattn {

struct Plan;

/// The kernel a backend would use for a problem.
struct Kernel {
  std::string name;                   // e.g. "avx512 bf16·bf16"
  std::int64_t tile_m = 1;            // packed query rows of an output tile
  std::int64_t tile_n = 1;            // keys of a LeanTile
  std::int64_t tile_n_invariant = 1;  // keys of a LeanTile when batch_invariant
  std::int64_t scratch_bytes = 0;     // per thread, beyond partials
  std::int64_t num_workers = 0;       // that run at once; 0: the machine's
  std::int64_t threads = 1;           // of a worker
  std::int64_t cluster = 1;           // thread blocks that make one worker of stream_k
};

/// Yes, with the kernel; or the sentence that says why not.
struct Support {
  std::string why_not;
  Kernel kernel;

  [[nodiscard]] explicit operator bool() const { return why_not.empty(); }
};

/// What executes, and the constants that the `auto` policy weighs with. Seconds,
/// bytes and bytes per second.
struct Machine {
  std::string description;             // e.g. "avx512_bf16, 2 threads"
  std::int64_t num_workers = 1;        // threads, or thread blocks resident at once
  double bytes_per_second = 0;         // of all workers reading
  double worker_bytes_per_second = 0;  // of one worker reading alone
  double worker_flops_per_second = 0;  // of one worker, multiplications and additions
  double start_seconds = 0;            // starting more than one worker
  double merge_seconds = 0;            // merging one partial
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// "cpu", "cuda"
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// Empty where this machine can run it, or the sentence that says what is missing.
  [[nodiscard]] virtual std::string unavailable() const { return {}; }
  /// The memory it reads and writes.
  [[nodiscard]] virtual Device::Kind device_kind() const = 0;
  [[nodiscard]] virtual Support supports(const Problem& problem) const = 0;
  [[nodiscard]] virtual Machine machine() const = 0;
  /// stream_k for `problem`: in the order that suits the backend, over `num_workers`
  /// workers if asked for (0: not), else as many as are best.
  [[nodiscard]] virtual Partition stream_k(const Problem& problem, const Kernel& kernel,
                                           std::int64_t num_workers) const = 0;
  /// The most output tiles of `problem`, as one_tile and fixed_split number their workers.
  [[nodiscard]] virtual std::int64_t num_output_tiles(const Problem& problem,
                                                      const Kernel& kernel) const = 0;
  /// Bytes of workspace that a plan, complete but for these, needs.
  [[nodiscard]] virtual std::size_t workspace_bytes(const Plan& plan) const = 0;
  /// Prepares a workspace; see `leanattn::initialise`.
  virtual void initialise(const Plan&, std::span<std::byte>, const Stream&) const {}
  /// Executes a checked call; see `leanattn::run`.
  virtual void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
                   const Stream& stream) const = 0;
  /// Both; see `leanattn::run_fresh`.
  virtual void run_fresh(const Plan& plan, const Arguments& arguments,
                         std::span<std::byte> workspace, const Stream& stream) const {
    initialise(plan, workspace, stream);
    run(plan, arguments, workspace, stream);
  }

  /// Memory of the backend's device, aligned to kWorkspaceAlignment, in the order of
  /// `stream`. Throws std::bad_alloc.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes, const Stream& stream) const;
  virtual void release(std::byte* memory, const Stream& stream) const noexcept;
  /// Copies between this device's memory and the host's, either way, after the work in
  /// `stream`; done when it returns.
  virtual void copy(void* to, const void* from, std::size_t bytes, const Stream& stream) const;

  /// Executes a call thread by thread; see `leanattn::begin` and `leanattn::work`.
  /// Throws Unsupported where threads are not the caller's to lend.
  virtual void begin(const Plan& plan, const Arguments& arguments,
                     std::span<std::byte> workspace) const;
  virtual void work(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
                    std::int64_t thread) const;
};

/// The backends of this build, best first.
[[nodiscard]] std::span<const Backend* const> backends();

/// The backend called `name`; "auto" is LEANATTN_BACKEND if set, else the first
/// that reads `device` memory. Throws InvalidArgument naming those there are.
[[nodiscard]] const Backend& backend(std::string_view name = "auto", Device device = {});

}  // namespace leanattn
