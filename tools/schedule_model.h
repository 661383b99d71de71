// Who computes what, and when, if every LeanTile took the same time: the schedule
// that a partition makes on a machine. Built on partition.h alone, as the engines
// are, so that a drawing cannot disagree with a run.
//
// A machine has N workers. stream_k deals to exactly those. one_tile and
// fixed_split may name more workers than the machine has; they are then started
// as a GPU starts thread blocks: in order, each on the machine worker that is free
// first. Merging is taken as free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leanattn/partition.h"
#include "leanattn/visibility.h"

namespace leanattn::tools {

/// A decode or prefill call as the planner sees it. All sequences have q_len queries.
struct Shape {
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 128;
  std::int64_t v_head_dim = 128;
  std::int64_t q_len = 1;
  std::vector<std::int64_t> lengths;  // keys of each sequence
  Window window;
  std::int64_t tile_m = 1;  // packed query rows of an output tile
  std::int64_t tile_n = 1;  // keys of a LeanTile
};

/// A TileMap that owns its prefix sums. Neither copied nor moved: `map` points inside.
class OwnedTileMap {
 public:
  /// Throws InvalidArgument for sizes that make no sense.
  explicit OwnedTileMap(const Shape& shape);
  OwnedTileMap(const OwnedTileMap&) = delete;
  OwnedTileMap& operator=(const OwnedTileMap&) = delete;

  [[nodiscard]] const TileMap& map() const { return map_; }

 private:
  std::vector<std::int64_t> first_block_;
  std::vector<std::int64_t> lean_tiles_before_;
  TileMap map_;
};

/// A work range ∩ one output tile. Times are in LeanTiles.
struct Segment {
  std::int64_t machine_worker = 0;
  std::int64_t worker = 0;       // as the partition numbers them
  std::int64_t output_tile = 0;  // index in the order of the TileMap
  OutputTile tile;
  Range lean_tiles;
  std::int64_t start = 0;
  bool partial = false;   // does not cover its output tile alone
  bool finishes = false;  // has the output tile's last LeanTile, of a tile that others share

  [[nodiscard]] std::int64_t stop() const { return start + lean_tiles.size(); }
};

struct Schedule {
  Partition partition;
  std::int64_t num_machine_workers = 1;
  std::vector<Segment> segments;  // by worker, then by time
  std::int64_t total = 0;         // LeanTiles
  std::int64_t makespan = 0;      // LeanTiles until the last worker is done
  std::int64_t num_partials = 0;
  std::int64_t workspace_bytes = 0;  // of the partials: (max, sum, O) per row, f32

  /// Work done over work possible: total / (N × makespan). 1 where there is no work.
  [[nodiscard]] double balance() const;
};

/// The schedule of `partition` on a machine of `num_machine_workers`. stream_k
/// requires partition.num_workers ≤ num_machine_workers.
[[nodiscard]] Schedule schedule_of(const Shape& shape, const TileMap& map,
                                   const Partition& partition, std::int64_t num_machine_workers);

/// A partition of `kind` for `map` on N machine workers. num_splits 0: as many as fill
/// the machine, as `leanattn::plan` does. Splits are used by fixed_split only.
[[nodiscard]] Partition partition_for(PartitionKind kind, const TileMap& map,
                                      std::int64_t num_machine_workers, std::int64_t num_splits);

/// "64%", "100%"; rounded down so that only perfect is 100%.
[[nodiscard]] std::string percent(double share);
/// "0 bytes", "1.5 KiB", "12 MiB"
[[nodiscard]] std::string bytes_text(std::int64_t bytes);

}  // namespace leanattn::tools
