// See schedule_model.h.
#include "schedule_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "core/splits.h"
#include "leanattn/error.h"

namespace leanattn::tools {
namespace {

void check_shape(const Shape& shape) {
  check(shape.num_kv_heads >= 1, "kv-heads is ", shape.num_kv_heads, "; at least 1 is needed");
  check(shape.num_q_heads >= 1 && shape.num_q_heads % shape.num_kv_heads == 0, "heads is ",
        shape.num_q_heads, "; a positive multiple of kv-heads (", shape.num_kv_heads,
        ") is needed");
  check(shape.head_dim >= 1 && shape.v_head_dim >= 1, "head-dim is ", shape.head_dim,
        "; at least 1 is needed");
  check(shape.q_len >= 0, "q-len is ", shape.q_len, "; 0 or more is needed");
  check(shape.tile_m >= 1, "tile-m is ", shape.tile_m, "; at least 1 is needed");
  check(shape.tile_n >= 1, "tile-n is ", shape.tile_n, "; at least 1 is needed");
  for (const std::int64_t length : shape.lengths) {
    check(length >= 0, "context is ", length, "; 0 or more keys are needed");
  }
}

// LeanTiles of the packed rows [first, last] of a sequence: those that hold a key
// some row sees. Row r belongs to query r / G.
std::int64_t lean_tiles_of(const Shape& shape, std::int64_t length, std::int64_t first,
                           std::int64_t last) {
  const std::int64_t group = shape.num_q_heads / shape.num_kv_heads;
  const std::int64_t offset = length - shape.q_len;
  const Range keys =
      visible_keys(shape.window, offset + first / group, offset + last / group, length);
  return lean_tiles_of_keys(keys, shape.tile_n).size();
}

// Which machine worker takes the next worker of the partition, and from when.
class BlockScheduler {
 public:
  explicit BlockScheduler(std::int64_t num_machine_workers) {
    for (std::int64_t i = 0; i < num_machine_workers; ++i) free_.push({0, i});
  }

  std::pair<std::int64_t, std::int64_t> start(std::int64_t duration) {
    const auto [time, machine_worker] = free_.top();
    free_.pop();
    free_.push({time + duration, machine_worker});
    return {time, machine_worker};
  }

 private:
  using Free = std::pair<std::int64_t, std::int64_t>;  // time, machine worker
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free_;
};

// LeanTiles of the longest output tile, at least 1.
std::int64_t longest_tile(const TileMap& map) {
  std::int64_t longest = 1;
  for (std::int64_t i = 0; i < map.num_row_blocks(); ++i) {
    longest = std::max(longest, map.lean_tiles_before[i + 1] - map.lean_tiles_before[i]);
  }
  return longest;
}

}  // namespace

OwnedTileMap::OwnedTileMap(const Shape& shape) {
  check_shape(shape);
  const std::int64_t rows = shape.num_q_heads / shape.num_kv_heads * shape.q_len;
  first_block_ = {0};
  lean_tiles_before_ = {0};
  for (const std::int64_t length : shape.lengths) {
    for (std::int64_t row = 0; row < rows; row += shape.tile_m) {
      const std::int64_t last = std::min(rows, row + shape.tile_m) - 1;
      lean_tiles_before_.push_back(lean_tiles_before_.back() +
                                   lean_tiles_of(shape, length, row, last));
    }
    first_block_.push_back(static_cast<std::int64_t>(lean_tiles_before_.size()) - 1);
  }
  map_ = {static_cast<std::int64_t>(shape.lengths.size()), shape.num_kv_heads, first_block_.data(),
          lean_tiles_before_.data(), Order::kHeadByHead};
}

double Schedule::balance() const {
  if (makespan == 0) return 1.0;
  return static_cast<double>(total) /
         (static_cast<double>(num_machine_workers) * static_cast<double>(makespan));
}

Schedule schedule_of(const Shape& shape, const TileMap& map, const Partition& partition,
                     std::int64_t num_machine_workers) {
  check(num_machine_workers >= 1, "workers is ", num_machine_workers, "; at least 1 is needed");
  Schedule schedule{partition, num_machine_workers, {}, map.num_lean_tiles(), 0, 0, 0};
  BlockScheduler machine(num_machine_workers);
  for (std::int64_t worker = 0; worker < partition.num_workers; ++worker) {
    const Range range = range_of(partition, map, worker);
    if (range.empty()) continue;
    auto [time, machine_worker] = machine.start(range.size());
    for (std::int64_t id = range.begin; id < range.end;) {
      const OutputTile tile = map.tile_of(id);
      const Range part = intersect(range, tile.lean_tiles);
      const bool partial = part != tile.lean_tiles;
      const bool finishes = partial && part.end == tile.lean_tiles.end;
      schedule.segments.push_back(
          {machine_worker, worker, map.index_of(tile), tile, part, time, partial, finishes});
      schedule.num_partials += partial ? 1 : 0;
      time += part.size();
      id = part.end;
    }
    schedule.makespan = std::max(schedule.makespan, time);
  }
  const std::int64_t rows =
      std::min(shape.tile_m, shape.num_q_heads / shape.num_kv_heads * shape.q_len);
  constexpr std::int64_t kStateFloats = 2;  // max and sum
  schedule.workspace_bytes = schedule.num_partials * rows * (shape.v_head_dim + kStateFloats) *
                             static_cast<std::int64_t>(sizeof(float));
  return schedule;
}

Partition partition_for(PartitionKind kind, const TileMap& map, std::int64_t num_machine_workers,
                        std::int64_t num_splits) {
  check(num_machine_workers >= 1, "workers is ", num_machine_workers, "; at least 1 is needed");
  check(num_splits >= 0, "splits is ", num_splits, "; 0 or more is needed");
  const std::int64_t tiles = map.num_output_tiles();
  if (kind == PartitionKind::kStreamK) return {kind, 1, num_machine_workers, map.order};
  std::int64_t splits = 1;
  if (kind == PartitionKind::kFixedSplit) {
    splits = num_splits > 0
                 ? num_splits
                 : core::flash_decoding_splits(tiles, num_machine_workers, longest_tile(map));
  }
  return {kind, splits, splits * tiles, map.order};
}

std::string percent(double share) {
  return fmt::format("{}%", static_cast<std::int64_t>(std::floor(share * 100.0 + 1e-9)));
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  const char* const units[] = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024.0;
  std::size_t unit = 0;
  while (value >= 1024.0 && unit < 3) {
    value /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, value < 10.0 ? 1 : 0, units[unit]);
}

}  // namespace leanattn::tools
