// plan, explain, and the calls that go through a plan.
#include <algorithm>
#include <cmath>
#include <memory>

#include "core/index_values.h"
#include "core/schedule.h"
#include "core/splits.h"
#include "leanattn/attention.h"

namespace leanattn {
namespace {

/// Times that the `auto` policy compares, at the maxima of a problem. Seconds.
struct Costs {
  double one_worker = 0;
  double one_tile = 0;
  double stream_k = 0;
};

/// Bytes of keys and values that all sequences have at their maxima.
double kv_bytes(const Problem& problem) {
  const double per_key = static_cast<double>(problem.num_kv_heads) *
                         static_cast<double>(problem.head_dim * size_of(problem.k_type) +
                                             problem.v_head_dim * size_of(problem.v_type));
  return static_cast<double>(problem.batch) * static_cast<double>(problem.max_kv_len) * per_key;
}

/// Multiplications and additions of Q·Kᵀ and P·V at the maxima.
double flops(const Problem& problem) {
  return 2.0 * static_cast<double>(problem.num_queries) * static_cast<double>(problem.num_q_heads) *
         static_cast<double>(problem.max_kv_len) *
         static_cast<double>(problem.head_dim + problem.v_head_dim);
}

/// A worker moves bytes or computes, whichever is slower; all workers together
/// move no more than the machine; more than one worker must be started.
Costs costs_of(const Problem& problem, const Machine& machine, std::int64_t tiles,
               std::int64_t workers) {
  const double bytes = kv_bytes(problem);
  const double arithmetic = flops(problem) / machine.worker_flops_per_second;
  const auto spread = [&](double busy_workers) {
    return std::max({bytes / (busy_workers * machine.worker_bytes_per_second),
                     bytes / machine.bytes_per_second, arithmetic / busy_workers});
  };
  Costs costs;
  costs.one_worker = spread(1);
  // Equal output tiles in rounds; the last round may leave workers idle.
  const double rounds = std::ceil(static_cast<double>(tiles) / static_cast<double>(workers));
  costs.one_tile = machine.start_seconds +
                   spread(std::max(1.0, static_cast<double>(tiles) / std::max(1.0, rounds)));
  costs.stream_k =
      machine.start_seconds + spread(static_cast<double>(workers)) + 2.0 * machine.merge_seconds;
  return costs;
}

void choose_partition(Plan& plan, const Machine& machine, const PlanOptions& options) {
  const std::int64_t tiles = plan.backend->num_output_tiles(plan.problem, plan.kernel);
  const bool kernel_decides = options.num_workers == 0 && plan.kernel.num_workers > 0;
  const std::int64_t workers = options.num_workers > 0 ? options.num_workers
                               : kernel_decides        ? plan.kernel.num_workers
                                                       : plan.num_threads;
  const std::int64_t per_tile = ceil_div(plan.problem.max_kv_len, plan.tile_n);
  const auto per_output_tile = [&](PartitionKind kind, std::int64_t splits) {
    return Partition{kind, splits, std::max<std::int64_t>(1, splits * tiles), Order::kHeadByHead};
  };
  // How many blocks share a worker depends on the batch, and so would the bits.
  if (plan.batch_invariant) plan.kernel.cluster = 1;
  switch (options.partition) {
    case PartitionChoice::kOneTile:
      plan.partition = per_output_tile(PartitionKind::kOneTile, 1);
      break;
    case PartitionChoice::kFixedSplit:
      plan.partition = per_output_tile(PartitionKind::kFixedSplit,
                                       options.num_splits > 0
                                           ? options.num_splits
                                           : core::flash_decoding_splits(tiles, workers, per_tile));
      break;
    case PartitionChoice::kStreamK:
      plan.partition =
          plan.backend->stream_k(plan.problem, plan.kernel, kernel_decides ? 0 : workers);
      break;
    case PartitionChoice::kAuto: {
      const Costs costs = costs_of(plan.problem, machine, tiles, workers);
      const bool alone = workers == 1 || costs.one_worker <= costs.stream_k;
      // Where the rows of queries alone make many times more output tiles than a device has
      // workers, there is nothing to balance, and whole ones have no partials.
      constexpr std::int64_t kManyTiles = 4;
      if (plan.problem.max_q_len > 1 && plan.backend->device_kind() == Device::Kind::kDevice &&
          tiles >= kManyTiles * workers) {
        plan.partition = per_output_tile(PartitionKind::kOneTile, 1);
        plan.estimated_seconds = costs.one_tile;
        break;
      }
      plan.partition = plan.backend->stream_k(plan.problem, plan.kernel,
                                              alone            ? 1
                                              : kernel_decides ? 0
                                                               : workers);
      plan.estimated_seconds = alone ? costs.one_worker : costs.stream_k;
      break;
    }
  }
  if (plan.partition.kind != PartitionKind::kStreamK) plan.kernel.cluster = 1;
  if (plan.backend->device_kind() == Device::Kind::kHost) {
    plan.num_threads = std::min(plan.num_threads, plan.partition.num_workers);
  } else {
    plan.num_threads = plan.partition.num_workers;
  }
}

/// LeanTiles, workers, partials and their bytes are counted in 64 bits, and a LeanTile
/// times the workers must fit (see share_of); refused here, in floating point,
/// before anything is multiplied.
void check_counts(const Plan& plan, const PlanOptions& options) {
  constexpr double kMost = 0x1p62;
  const auto count = [](std::int64_t n) { return std::max(1.0, static_cast<double>(n)); };
  const double tiles = count(plan.backend->num_output_tiles(plan.problem, plan.kernel));
  const double keys = count(plan.problem.max_kv_len);
  const double workers = std::max(count(options.num_workers), count(plan.num_threads));
  const double splits = count(options.num_splits);
  check(workers * count(plan.kernel.scratch_bytes + 64) < kMost, "num_workers is ",
        options.num_workers, " on ", plan.num_threads,
        " threads; their scratch must stay below 2^62 bytes");
  check(tiles * splits * keys < kMost && tiles * keys * workers < kMost, "num_splits is ",
        options.num_splits, " and num_workers ", options.num_workers, " for ", tiles,
        " output tiles of up to ", keys, " keys; LeanTiles times workers must stay below 2^62");
  const double partials = plan.batch_invariant ? tiles * keys : tiles * splits + 2 * workers;
  check(partials * 4.0 * count(partial_floats(plan)) < kMost, "max_kv_len is ",
        plan.problem.max_kv_len, " for ", tiles, " output tiles in ", splits,
        " splits; their partials must stay below 2^62 bytes");
}

std::string microseconds(double seconds) {
  std::ostringstream text;
  text.precision(3);
  text << seconds * 1e6 << " µs";
  return std::move(text).str();
}

void check_workspace(const Plan& plan, std::span<std::byte> workspace) {
  check(plan.backend != nullptr, "plan was not made by leanattn::plan: it names no backend");
  check(workspace.size() >= plan.workspace_bytes, "workspace has ", workspace.size(),
        " bytes; this plan needs at least ", plan.workspace_bytes);
  check(reinterpret_cast<std::uintptr_t>(workspace.data()) % kWorkspaceAlignment == 0,
        "workspace begins at an address that is not a multiple of ", kWorkspaceAlignment,
        " bytes; allocate it with that alignment");
}

void check_stream(const Plan& plan, const Stream& stream) {
  check(stream == Stream{} || plan.backend->device_kind() == Device::Kind::kDevice,
        "stream is given, but backend ", plan.backend->name(),
        " queues no work; it must be left out, because it would be ignored");
}

void check_run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
               const Stream& stream) {
  check_workspace(plan, workspace);
  check_stream(plan, stream);
  check_arguments(plan.problem, arguments);
  if (plan.checked && plan.problem.device.kind == Device::Kind::kDevice) {
    core::check_index_values_of_device(plan, arguments, stream);
  }
}

}  // namespace

std::string_view name_of(PartitionChoice choice) {
  switch (choice) {
    case PartitionChoice::kAuto: return "auto";
    case PartitionChoice::kOneTile: return name_of(PartitionKind::kOneTile);
    case PartitionChoice::kFixedSplit: return name_of(PartitionKind::kFixedSplit);
    case PartitionChoice::kStreamK: return name_of(PartitionKind::kStreamK);
  }
  return "?";
}

std::string_view name_of(PartitionKind kind) {
  switch (kind) {
    case PartitionKind::kOneTile: return "one_tile";
    case PartitionKind::kFixedSplit: return "fixed_split";
    case PartitionKind::kStreamK: return "stream_k";
  }
  return "?";
}

Plan plan(const Problem& problem, const PlanOptions& options) {
  check_problem(problem);
  check(options.num_workers >= 0, "num_workers is ", options.num_workers,
        "; allowed are 0 (the machine's) and more");
  check(options.num_threads >= 0, "num_threads is ", options.num_threads,
        "; allowed are 0 (the machine's) and more");
  check(options.num_splits >= 0, "num_splits is ", options.num_splits,
        "; allowed are 0 (as many as fill the machine) and more");
  check(options.num_splits == 0 || options.partition == PartitionChoice::kFixedSplit,
        "num_splits is ", options.num_splits, " but the partition is ", name_of(options.partition),
        ", which has none; only fixed_split takes it");

  Plan plan;
  plan.problem = problem;
  plan.backend = &backend(options.backend, problem.device);
  const bool on_host = plan.backend->device_kind() == Device::Kind::kHost;
  check(on_host || options.num_threads == 0, "num_threads is ", options.num_threads,
        " but backend ", plan.backend->name(), " has no threads; it must be 0 there");
  const std::string unavailable = plan.backend->unavailable();
  check<Unsupported>(unavailable.empty(), unavailable);
  const Support support = plan.backend->supports(problem);
  check<Unsupported>(static_cast<bool>(support), support.why_not);
  plan.kernel = support.kernel;
  plan.asked = options.partition;
  plan.batch_invariant = options.batch_invariant;
  plan.checked = options.checked;
  plan.tile_n = options.batch_invariant ? plan.kernel.tile_n_invariant : plan.kernel.tile_n;

  const Machine machine = plan.backend->machine();
  plan.num_threads = options.num_threads > 0 ? options.num_threads : machine.num_workers;
  check_counts(plan, options);
  choose_partition(plan, machine, options);

  plan.workspace_bytes = plan.backend->workspace_bytes(plan);
  return plan;
}

std::string explain(const Plan& plan) {
  const std::int64_t tiles = plan.backend->num_output_tiles(plan.problem, plan.kernel);
  const std::int64_t per_tile = ceil_div(plan.problem.max_kv_len, plan.tile_n);
  const std::string shape =
      concat(tiles, " output tiles of at most ", per_tile, " LeanTiles (", plan.tile_n, " keys)");
  if (plan.asked != PartitionChoice::kAuto) {
    const bool on_host = plan.backend->device_kind() == Device::Kind::kHost;
    return concat(name_of(plan.partition.kind), " as asked: ", shape, " for ",
                  plan.partition.num_workers, " workers",
                  on_host ? concat(" on ", plan.num_threads, " threads") : std::string());
  }
  const Machine machine = plan.backend->machine();
  // Of a plan for one worker, how many there might have been.
  const std::int64_t workers =
      plan.partition.num_workers > 1 ? plan.partition.num_workers : machine.num_workers;
  const Costs costs = costs_of(plan.problem, machine, tiles, workers);
  if (plan.partition.kind == PartitionKind::kOneTile) {
    return concat("one_tile: ", shape, " for ", plan.partition.num_workers, " workers take about ",
                  microseconds(costs.one_tile),
                  ", and there are enough of them to keep the machine busy");
  }
  if (plan.partition.num_workers == 1) {
    return concat("one worker: ", shape, " take about ", microseconds(costs.one_worker), ", and ",
                  workers, " workers would take ", microseconds(costs.stream_k),
                  " with their start");
  }
  return concat("stream_k over ", workers, " workers: ", shape, " take about ",
                microseconds(costs.stream_k), " in equal shares; one worker ",
                microseconds(costs.one_worker), ", one_tile ", microseconds(costs.one_tile),
                " if lengths were equal");
}

void initialise(const Plan& plan, std::span<std::byte> workspace, const Stream& stream) {
  check_workspace(plan, workspace);
  check_stream(plan, stream);
  plan.backend->initialise(plan, workspace, stream);
}

void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
         const Stream& stream) {
  check_run(plan, arguments, workspace, stream);
  plan.backend->run(plan, arguments, workspace, stream);
}

void run_fresh(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
               const Stream& stream) {
  check_run(plan, arguments, workspace, stream);
  plan.backend->run_fresh(plan, arguments, workspace, stream);
}

void run_once(const Plan& plan, const Arguments& arguments, const Stream& stream) {
  if (plan.workspace_bytes == 0) {
    run_fresh(plan, arguments, {}, stream);
    return;
  }
  const auto release = [&](std::byte* memory) { plan.backend->release(memory, stream); };
  const std::unique_ptr<std::byte, decltype(release)> memory(
      plan.backend->allocate(plan.workspace_bytes, stream), release);
  run_fresh(plan, arguments, {memory.get(), plan.workspace_bytes}, stream);
}

void begin(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace) {
  check_workspace(plan, workspace);
  check_arguments(plan.problem, arguments);
  plan.backend->begin(plan, arguments, workspace);
}

void work(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
          std::int64_t thread) {
  check_workspace(plan, workspace);
  check(thread >= 0 && thread < plan.num_threads, "thread is ", thread, "; allowed are 0 to ",
        plan.num_threads - 1);
  plan.backend->work(plan, arguments, workspace, thread);
}

void decode(const Arguments& arguments, const ScoreRules& rules, const PlanOptions& options,
            const Stream& stream) {
  run_once(plan(problem_of(arguments, rules), options), arguments, stream);
}

}  // namespace leanattn
