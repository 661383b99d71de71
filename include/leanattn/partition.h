// How LeanTiles are dealt to workers, as arithmetic (LeanAttention, arXiv
// 2405.10480; stream-K, arXiv 2301.03598).
//
// All LeanTiles of all output tiles lie end to end; their ids are [0, total). A
// partition gives each worker one contiguous work range of ids, in closed form,
// and finds the worker of an id the same way. Nothing is tabulated but the
// prefix sums of LeanTiles per row block. The CPU engine, device kernels, the
// plan drawer and the tests call these functions; they include nothing of the
// project and allocate nothing.
#pragma once

#include <cstdint>

#ifndef LEANATTN_HOST_DEVICE
#ifdef __CUDACC__
#define LEANATTN_HOST_DEVICE __host__ __device__
#else
#define LEANATTN_HOST_DEVICE
#endif
#endif

namespace leanattn {

/// [begin, end)
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t size() const { return end - begin; }
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
  friend constexpr bool operator==(const Range&, const Range&) = default;
};

[[nodiscard]] LEANATTN_HOST_DEVICE constexpr Range intersect(const Range& a, const Range& b) {
  const std::int64_t begin = a.begin > b.begin ? a.begin : b.begin;
  const std::int64_t end = a.end < b.end ? a.end : b.end;
  return {begin, begin < end ? end : begin};
}

[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// Share `index` of `total` items dealt to `num_shares`: sizes differ by at most
/// one. Share i begins at ⌊i·total / num_shares⌋, so a multiple of equal parts
/// is cut exactly as each part alone would be.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr Range even_share(std::int64_t total,
                                                              std::int64_t num_shares,
                                                              std::int64_t index) {
  const std::int64_t quotient = total / num_shares;
  const std::int64_t remainder = total % num_shares;
  return {index * quotient + index * remainder / num_shares,
          (index + 1) * quotient + (index + 1) * remainder / num_shares};
}

/// The share that holds `item`; the inverse of `even_share`. Requires
/// 0 ≤ item < total and total·num_shares < 2^63.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t share_of(std::int64_t total,
                                                                   std::int64_t num_shares,
                                                                   std::int64_t item) {
  return ((item + 1) * num_shares - 1) / total;
}

/// The largest i in [0, size) with values[i]·scale ≤ key. Requires
/// values[0]·scale ≤ key and non-decreasing values.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t last_not_above(const std::int64_t* values,
                                                                         std::int64_t size,
                                                                         std::int64_t scale,
                                                                         std::int64_t key) {
  std::int64_t low = 0;
  std::int64_t high = size;  // values[low]·scale ≤ key < values[high]·scale
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    if (values[middle] * scale <= key) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

/// One (sequence, KV head, block of packed query rows) and the ids of its
/// LeanTiles.
struct OutputTile {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t row_block = 0;  // within the sequence
  Range lean_tiles;
};

/// Where the LeanTiles of a problem lie: sequence by sequence, in it KV head by
/// KV head, in it row block by row block. Non-owning.
struct TileMap {
  std::int64_t num_sequences = 0;
  std::int64_t num_kv_heads = 1;
  const std::int64_t* first_block = nullptr;        // [num_sequences + 1] row blocks before b
  const std::int64_t* lean_tiles_before = nullptr;  // [row blocks + 1], of one KV head

  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_row_blocks() const {
    return num_sequences == 0 ? 0 : first_block[num_sequences];
  }
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_output_tiles() const {
    return num_row_blocks() * num_kv_heads;
  }
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_lean_tiles() const {
    return num_sequences == 0 ? 0 : lean_tiles_before[num_row_blocks()] * num_kv_heads;
  }

  /// Output tile `index` of [0, num_output_tiles()).
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr OutputTile tile(std::int64_t index) const {
    const std::int64_t b = last_not_above(first_block, num_sequences, num_kv_heads, index);
    const std::int64_t blocks = first_block[b + 1] - first_block[b];
    const std::int64_t in_sequence = index - first_block[b] * num_kv_heads;
    return make_tile(b, in_sequence / blocks, in_sequence % blocks);
  }

  /// The output tile that holds LeanTile `id` of [0, num_lean_tiles()).
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr OutputTile tile_of(std::int64_t id) const {
    const std::int64_t* before = lean_tiles_before;
    const std::int64_t row_blocks = num_row_blocks();
    // The sequence's LeanTiles begin at before[first_block[b]]·num_kv_heads.
    std::int64_t low = 0;
    std::int64_t high = num_sequences;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      if (before[first_block[middle]] * num_kv_heads <= id) {
        low = middle;
      } else {
        high = middle;
      }
    }
    const std::int64_t begin = first_block[low];
    const std::int64_t blocks =
        (low + 1 < num_sequences ? first_block[low + 1] : row_blocks) - begin;
    const std::int64_t per_head = before[begin + blocks] - before[begin];
    const std::int64_t in_sequence = id - before[begin] * num_kv_heads;
    const std::int64_t in_head = in_sequence % per_head;
    const std::int64_t block = last_not_above(before + begin, blocks, 1, before[begin] + in_head);
    return make_tile(low, in_sequence / per_head, block);
  }

 private:
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr OutputTile make_tile(std::int64_t b,
                                                                    std::int64_t head,
                                                                    std::int64_t block) const {
    const std::int64_t first = first_block[b];
    const std::int64_t per_head = lean_tiles_before[first_block[b + 1]] - lean_tiles_before[first];
    const std::int64_t base = lean_tiles_before[first] * (num_kv_heads - 1) + head * per_head;
    return {b,
            head,
            block,
            {base + lean_tiles_before[first + block], base + lean_tiles_before[first + block + 1]}};
  }
};

enum class PartitionKind : std::uint8_t {
  kOneTile,     // a worker per output tile (FlashAttention-2)
  kFixedSplit,  // a fixed number of workers per output tile (FlashDecoding)
  kStreamK,     // equal shares, across output tiles (LeanAttention)
};

/// The rule, and how many workers it deals to.
struct Partition {
  PartitionKind kind = PartitionKind::kStreamK;
  std::int64_t num_splits = 1;   // workers per output tile of one_tile (1) and fixed_split
  std::int64_t num_workers = 1;  // at least num_splits × output tiles of those two
};

/// The LeanTile ids of `worker` in [0, num_workers). It may be empty.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr Range range_of(const Partition& partition,
                                                            const TileMap& map,
                                                            std::int64_t worker) {
  if (partition.kind == PartitionKind::kStreamK) {
    return even_share(map.num_lean_tiles(), partition.num_workers, worker);
  }
  const std::int64_t index = worker / partition.num_splits;
  if (index >= map.num_output_tiles()) return {map.num_lean_tiles(), map.num_lean_tiles()};
  const Range tile = map.tile(index).lean_tiles;
  const Range share = even_share(tile.size(), partition.num_splits, worker % partition.num_splits);
  return {tile.begin + share.begin, tile.begin + share.end};
}

/// The worker whose range holds LeanTile `id`, which lies in `tile`.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t worker_of(const Partition& partition,
                                                                    const TileMap& map,
                                                                    const OutputTile& tile,
                                                                    std::int64_t id) {
  if (partition.kind == PartitionKind::kStreamK) {
    return share_of(map.num_lean_tiles(), partition.num_workers, id);
  }
  const std::int64_t first = map.first_block[tile.sequence];
  const std::int64_t blocks = map.first_block[tile.sequence + 1] - first;
  const std::int64_t index = first * map.num_kv_heads + tile.kv_head * blocks + tile.row_block;
  return index * partition.num_splits +
         share_of(tile.lean_tiles.size(), partition.num_splits, id - tile.lean_tiles.begin);
}

}  // namespace leanattn
