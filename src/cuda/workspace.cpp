#include "cuda/workspace.h"

#include <algorithm>

#include "core/schedule.h"
#include "cuda/call.h"

namespace leanattn::cuda {

std::int64_t num_row_blocks(const Problem& problem, const Kernel& kernel) {
  return problem.batch * ceil_div(problem.packed_rows(problem.max_q_len), kernel.tile_m);
}

std::int64_t num_places(const Plan& plan) {
  const Partition& partition = plan.partition;
  const bool in_turn = partition.kind == PartitionKind::kStreamK && plan.kernel.cluster == 1;
  return in_turn ? std::min(partition.num_workers, plan.kernel.num_workers) : partition.num_workers;
}

Workspace workspace_of(const Plan& plan) {
  const Problem& problem = plan.problem;
  const std::int64_t rows = std::min(plan.kernel.tile_m, problem.packed_rows(problem.max_q_len));
  const std::int64_t quads = problem.v_head_dim / 4;
  Workspace workspace;
  workspace.num_slices = rows / 8 * num_slices_of(1, static_cast<int>(problem.v_head_dim)) +
                         ceil_div(rows % 8 * quads, 32);
  const std::int64_t tiles = num_row_blocks(problem, plan.kernel) * problem.num_kv_heads;
  const Partition& partition = plan.partition;
  // A head of one row block that one worker has is merged with nobody.
  const bool merges = partition.order != Order::kHeadSynchronous ||
                      num_row_blocks(problem, plan.kernel) != 1 ||
                      partition.num_workers != problem.num_kv_heads;
  const bool counts = plan.batch_invariant || (partition.kind == PartitionKind::kStreamK && merges);
  workspace.num_counters =
      counts ? workspace.num_slices * (plan.batch_invariant ? tiles : plan.partition.num_workers)
             : 0;
  workspace.counts_claims = num_places(plan) < partition.num_workers;
  if (workspace.counts_claims) ++workspace.num_counters;
  std::int64_t slots = merges ? num_partials(plan) : 0;
  if (plan.batch_invariant) {
    const std::int64_t per_tile = ceil_div(problem.max_kv_len, plan.tile_n);
    slots = per_tile < 2 ? 0 : per_tile * tiles;
  }
  workspace.partials =
      aligned(static_cast<std::size_t>(workspace.num_counters) * sizeof(std::uint32_t));
  workspace.bytes = workspace.partials +
                    aligned(static_cast<std::size_t>(slots * workspace.num_slices * kSliceFloats) *
                            sizeof(float));
  return workspace;
}

}  // namespace leanattn::cuda
