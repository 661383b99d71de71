// How LeanTiles are dealt to workers, as arithmetic (LeanAttention, arXiv
// 2405.10480; stream-K, arXiv 2301.03598).
//
// All LeanTiles of all output tiles lie end to end; their ids are [0, total). A
// partition gives each worker one contiguous work range of ids, in closed form,
// and finds the worker of an id the same way. Nothing is tabulated but the
// prefix sums of LeanTiles per row block. The CPU engine, device kernels, the
// plan drawer and the tests call these functions; they include nothing of the
// project and allocate nothing. Int is 64 bits wide but in kernels, whose plans
// keep every id below 2^31.
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
template <class Int>
struct BasicRange {
  Int begin = 0;
  Int end = 0;

  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr Int size() const { return end - begin; }
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr bool empty() const { return begin >= end; }
  friend constexpr bool operator==(const BasicRange&, const BasicRange&) = default;
};
using Range = BasicRange<std::int64_t>;

template <class Int>
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr BasicRange<Int> intersect(const BasicRange<Int>& a,
                                                                       const BasicRange<Int>& b) {
  const Int begin = a.begin > b.begin ? a.begin : b.begin;
  const Int end = a.end < b.end ? a.end : b.end;
  return {begin, begin < end ? end : begin};
}
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr Range intersect(const Range& a, const Range& b) {
  return intersect<std::int64_t>(a, b);
}

[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0);
}

/// The LeanTiles, counted from the first key of the sequence, that hold `keys`.
template <class Int>
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr BasicRange<Int> lean_tiles_of_keys(
    BasicRange<Int> keys, Int tile_n) {
  if (keys.empty()) return {};
  return {keys.begin / tile_n, (keys.end - 1) / tile_n + 1};
}

/// Share `index` of `total` items dealt to `num_shares`; sizes differ by at most
/// one. Share i begins at ⌊i·total / num_shares⌋, so a multiple of equal parts
/// is cut exactly as each part alone would be. Requires num_shares² < 2^31 (Int of 32
/// bits) or 2^63. Count is what Int can be divided by.
template <class Int, class Count>
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr BasicRange<Int> even_share(Int total,
                                                                        const Count& num_shares,
                                                                        Int index) {
  const Int quotient = total / num_shares;
  const Int remainder = total % num_shares;
  return {index * quotient + index * remainder / num_shares,
          (index + 1) * quotient + (index + 1) * remainder / num_shares};
}

/// The share that holds `item`; the inverse of `even_share`. Requires
/// 0 ≤ item < total and total·num_shares < 2^63.
template <class Int>
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr Int share_of(Int total, Int num_shares, Int item) {
  const std::int64_t before = (static_cast<std::int64_t>(item) + 1) * num_shares - 1;
  // A division of 64 bits takes a GPU five times one of 32.
  if (before < (std::int64_t{1} << 31) && total < (std::int64_t{1} << 31)) {
    return static_cast<Int>(static_cast<std::uint32_t>(before) / static_cast<std::uint32_t>(total));
  }
  return static_cast<Int>(before / total);
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

/// The order in which LeanTiles are laid end to end, and with it which of them are
/// read at the same time.
enum class Order : std::uint8_t {
  kHeadByHead,       // sequence by sequence, in it row block by row block, in it KV head by KV head
  kHeadSynchronous,  // KV head by KV head; workers take turns over the heads, and every head is
                     // cut at the same tokens
};

/// One (sequence, KV head, block of packed query rows) and the ids of its
/// LeanTiles.
struct OutputTile {
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t row_block = 0;  // within the sequence
  Range lean_tiles;
};

/// Where the LeanTiles of a problem lie. Non-owning.
struct TileMap {
  std::int64_t num_sequences = 0;
  std::int64_t num_kv_heads = 1;
  const std::int64_t* first_block = nullptr;        // [num_sequences + 1] row blocks before b
  const std::int64_t* lean_tiles_before = nullptr;  // [row blocks + 1], of one KV head
  Order order = Order::kHeadByHead;

  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_row_blocks() const {
    return num_sequences == 0 ? 0 : first_block[num_sequences];
  }
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_output_tiles() const {
    return num_row_blocks() * num_kv_heads;
  }
  /// LeanTiles of one KV head.
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t per_head() const {
    return num_sequences == 0 ? 0 : lean_tiles_before[num_row_blocks()];
  }
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_lean_tiles() const {
    return per_head() * num_kv_heads;
  }

  /// Output tile `index` of [0, num_output_tiles()): row block by row block, in it KV
  /// head by KV head.
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr OutputTile tile(std::int64_t index) const {
    return make_tile(index / num_kv_heads, index % num_kv_heads);
  }

  /// The index of an output tile; the inverse of `tile`.
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t index_of(const OutputTile& tile) const {
    return (first_block[tile.sequence] + tile.row_block) * num_kv_heads + tile.kv_head;
  }

  /// The output tile that holds LeanTile `id` of [0, num_lean_tiles()).
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr OutputTile tile_of(std::int64_t id) const {
    if (order == Order::kHeadSynchronous) {
      const std::int64_t head = id / per_head();
      const std::int64_t in_head = id % per_head();
      return make_tile(last_not_above(lean_tiles_before, num_row_blocks(), 1, in_head), head);
    }
    const std::int64_t block =
        last_not_above(lean_tiles_before, num_row_blocks(), num_kv_heads, id);
    const std::int64_t size = lean_tiles_before[block + 1] - lean_tiles_before[block];
    return make_tile(block, (id - lean_tiles_before[block] * num_kv_heads) / size);
  }

 private:
  /// Of row block `block` of all sequences.
  [[nodiscard]] LEANATTN_HOST_DEVICE constexpr OutputTile make_tile(std::int64_t block,
                                                                    std::int64_t head) const {
    const std::int64_t b = last_not_above(first_block, num_sequences, 1, block);
    const std::int64_t size = lean_tiles_before[block + 1] - lean_tiles_before[block];
    const std::int64_t begin = order == Order::kHeadSynchronous
                                   ? head * per_head() + lean_tiles_before[block]
                                   : lean_tiles_before[block] * num_kv_heads + head * size;
    return {b, head, block - first_block[b], {begin, begin + size}};
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
  std::int64_t num_workers = 1;  // at least num_splits × output tiles of those two; stream_k,
                                 // head-synchronous: a multiple of the KV heads
  Order order = Order::kHeadByHead;
};

/// stream_k deals the LeanTiles of a line evenly: head by head there is one line, of all
/// heads; head-synchronous there is one of each head, and the workers take turns over
/// them: worker w has share w / num_lines of line w % num_lines.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t num_lines(Order order,
                                                                    std::int64_t num_kv_heads) {
  return order == Order::kHeadSynchronous ? num_kv_heads : 1;
}

/// From a worker to the one that takes the ids after its own.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr std::int64_t worker_step(const Partition& partition,
                                                                      std::int64_t num_kv_heads) {
  return partition.kind == PartitionKind::kStreamK ? num_lines(partition.order, num_kv_heads) : 1;
}

/// The LeanTile ids of `worker` in [0, num_workers). It may be empty. `map` has the
/// partition's order.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr Range range_of(const Partition& partition,
                                                            const TileMap& map,
                                                            std::int64_t worker) {
  if (partition.kind == PartitionKind::kStreamK) {
    const std::int64_t lines = num_lines(partition.order, map.num_kv_heads);
    const std::int64_t line = map.num_lean_tiles() / lines;
    const Range share = even_share(line, partition.num_workers / lines, worker / lines);
    const std::int64_t before = worker % lines * line;
    return {before + share.begin, before + share.end};
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
    const std::int64_t lines = num_lines(partition.order, map.num_kv_heads);
    const std::int64_t line = map.num_lean_tiles() / lines;
    return share_of(line, partition.num_workers / lines, id % line) * lines + id / line;
  }
  return map.index_of(tile) * partition.num_splits +
         share_of(tile.lean_tiles.size(), partition.num_splits, id - tile.lean_tiles.begin);
}

}  // namespace leanattn
