// What a plan becomes when it meets the lengths: where the LeanTiles lie, and
// where everything lies in the workspace.
//
// Workspace, in this order, each part aligned to kWorkspaceAlignment:
//   counters   [1 + workers] int64: the next worker to start; LeanTiles arrived
//              at the output tile that each worker owns (holds the first of)
//   blocks     TileMap::first_block, then TileMap::lean_tiles_before
//   partials   [slots][tile_m·(2 + v_head_dim)] float: max, sum, O of every row
//   scratch    [threads][kernel.scratch_bytes]
#pragma once

#include <cstddef>
#include <cstdint>

#include "leanattn/attention.h"

namespace leanattn {

struct WorkspaceLayout {
  std::size_t counters = 0;
  std::size_t first_block = 0;
  std::size_t lean_tiles_before = 0;
  std::size_t partials = 0;
  std::size_t scratch = 0;
  std::size_t bytes = 0;
};

/// Rounds up to kWorkspaceAlignment.
[[nodiscard]] constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}

/// Floats of one partial.
[[nodiscard]] std::int64_t partial_floats(const Plan& plan);

/// Most row blocks that the sequences of `problem` can have together.
[[nodiscard]] std::int64_t max_row_blocks(const Problem& problem, std::int64_t tile_m);

/// Most output tiles.
[[nodiscard]] std::int64_t max_output_tiles(const Problem& problem, std::int64_t tile_m);

/// Partials the workspace has room for.
[[nodiscard]] std::int64_t num_partials(const Plan& plan);

[[nodiscard]] WorkspaceLayout workspace_layout(const Plan& plan);

/// One sequence of a call.
struct SequenceShape {
  std::int64_t first_query = 0;  // ragged: its first row of q; else 0
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};
[[nodiscard]] SequenceShape sequence_shape(const Problem& problem, const Arguments& arguments,
                                           std::int64_t sequence);

/// The keys that packed rows [rows.begin, rows.end) of a sequence see.
[[nodiscard]] Range keys_of_rows(const Problem& problem, const SequenceShape& shape, Range rows);

/// Packed rows of row block `row_block`.
[[nodiscard]] Range rows_of_block(const Plan& plan, const SequenceShape& shape,
                                  std::int64_t row_block);

/// Reads the lengths and lays the LeanTiles end to end, in `workspace`.
TileMap lay_out(const Plan& plan, const Arguments& arguments, std::byte* workspace);

/// The map that `lay_out` wrote.
[[nodiscard]] TileMap tile_map(const Plan& plan, std::byte* workspace);

}  // namespace leanattn
