#include "core/schedule.h"

#include <algorithm>

namespace leanattn {

std::int64_t partial_floats(const Plan& plan) {
  return plan.kernel.tile_m * (2 + plan.problem.v_head_dim);
}

std::int64_t max_row_blocks(const Problem& problem, std::int64_t tile_m) {
  const std::int64_t of_longest = ceil_div(problem.packed_rows(problem.max_q_len), tile_m);
  // Every sequence leaves at most one block partly filled.
  const std::int64_t of_total = problem.packed_rows(problem.num_queries) / tile_m + problem.batch;
  return std::min(problem.batch * of_longest, of_total);
}

std::int64_t max_output_tiles(const Problem& problem, std::int64_t tile_m) {
  return max_row_blocks(problem, tile_m) * problem.num_kv_heads;
}

std::int64_t num_partials(const Plan& plan) {
  if (plan.batch_invariant) {  // one for every LeanTile of an output tile that has several
    const std::int64_t per_tile = ceil_div(plan.problem.max_kv_len, plan.tile_n);
    return per_tile < 2 ? 0 : per_tile * max_output_tiles(plan.problem, plan.kernel.tile_m);
  }
  switch (plan.partition.kind) {
    case PartitionKind::kOneTile: return 0;
    case PartitionKind::kFixedSplit:
      return plan.partition.num_splits == 1 ? 0 : plan.partition.num_workers;
    case PartitionKind::kStreamK:  // its first and its last segment
      return plan.partition.num_workers == 1 ? 0 : 2 * plan.partition.num_workers;
  }
  return 0;
}

WorkspaceLayout workspace_layout(const Plan& plan) {
  const std::int64_t blocks = max_row_blocks(plan.problem, plan.kernel.tile_m);
  WorkspaceLayout layout;
  std::size_t end = 0;
  const auto take = [&end](std::size_t bytes) {
    const std::size_t begin = end;
    end += aligned(bytes);
    return begin;
  };
  layout.counters = take((1 + plan.partition.num_workers) * sizeof(std::int64_t));
  layout.first_block = take((plan.problem.batch + 1) * sizeof(std::int64_t));
  layout.lean_tiles_before = take((blocks + 1) * sizeof(std::int64_t));
  layout.partials = take(num_partials(plan) * partial_floats(plan) * sizeof(float));
  layout.scratch = take(plan.num_threads * aligned(plan.kernel.scratch_bytes));
  layout.bytes = end;
  return layout;
}

SequenceShape sequence_shape(const Problem& problem, const Arguments& arguments,
                             std::int64_t sequence) {
  const std::int64_t kv_len = arguments.lengths[sequence];
  if (!problem.ragged_q) return {0, problem.max_q_len, kv_len};
  const std::int64_t first = arguments.q_offsets[sequence];
  return {first, arguments.q_offsets[sequence + 1] - first, kv_len};
}

Range keys_of_rows(const Problem& problem, const SequenceShape& shape, Range rows) {
  const std::int64_t group = problem.group_size();
  const std::int64_t first_position = shape.kv_len - shape.q_len;
  return visible_keys(problem.rules.window, first_position + rows.begin / group,
                      first_position + (rows.end - 1) / group, shape.kv_len);
}

Range rows_of_block(const Plan& plan, const SequenceShape& shape, std::int64_t row_block) {
  const std::int64_t tile_m = plan.kernel.tile_m;
  return {row_block * tile_m,
          std::min((row_block + 1) * tile_m, plan.problem.packed_rows(shape.q_len))};
}

TileMap tile_map(const Plan& plan, std::byte* workspace) {
  const WorkspaceLayout layout = workspace_layout(plan);
  return {plan.problem.batch, plan.problem.num_kv_heads,
          reinterpret_cast<const std::int64_t*>(workspace + layout.first_block),
          reinterpret_cast<const std::int64_t*>(workspace + layout.lean_tiles_before),
          plan.partition.order};
}

TileMap lay_out(const Plan& plan, const Arguments& arguments, std::byte* workspace) {
  const WorkspaceLayout layout = workspace_layout(plan);
  auto* first_block = reinterpret_cast<std::int64_t*>(workspace + layout.first_block);
  auto* before = reinterpret_cast<std::int64_t*>(workspace + layout.lean_tiles_before);
  std::int64_t block = 0;
  before[0] = 0;
  for (std::int64_t b = 0; b < plan.problem.batch; ++b) {
    first_block[b] = block;
    const SequenceShape shape = sequence_shape(plan.problem, arguments, b);
    const std::int64_t blocks = ceil_div(plan.problem.packed_rows(shape.q_len), plan.kernel.tile_m);
    for (std::int64_t i = 0; i < blocks; ++i, ++block) {
      const Range keys = keys_of_rows(plan.problem, shape, rows_of_block(plan, shape, i));
      before[block + 1] = before[block] + lean_tiles_of_keys(keys, plan.tile_n).size();
    }
  }
  first_block[plan.problem.batch] = block;
  return tile_map(plan, workspace);
}

}  // namespace leanattn
