// Where the LeanTiles of a call lie: found on the device from the lengths.
//
// A row block is (sequence, block of packed query rows), numbered sequence by
// sequence with room for the most blocks of any; those a sequence lacks have no
// LeanTile. The row blocks' LeanTiles of one KV head, end to end, are a head's line.
#pragma once

#include "cuda/call.h"
#include "cuda/device_functions.cuh"

namespace leanattn::cuda {

using Range32 = BasicRange<int>;

/// What the lengths say of one row block.
struct RowBlock {
  int kv_len = 0;
  int q_len = 0;
  int first_query = 0;  // ragged: the sequence's first row of q
  Range32 keys{};       // visible to some row
};

/// Packed rows of block `block` of a sequence.
[[nodiscard]] __device__ inline Range32 rows_of_block(const Call& call, int q_len, int block,
                                                      int tile_m) {
  return {block * tile_m, min((block + 1) * tile_m, q_len * call.group.value())};
}

/// What is in memory about a row block: loaded well before it is looked at.
struct LoadedLengths {
  int kv_len = 0;
  int first_query = 0;  // of ragged queries, which end before end_query
  int end_query = 0;

  __device__ void load(const Call& call, int row_block) {
    const int sequence = row_block / call.blocks_per_sequence;
    kv_len = load_index(call.lengths, sequence);
    if (call.q_offsets.data != nullptr) {
      first_query = load_index(call.q_offsets, sequence);
      end_query = load_index(call.q_offsets, sequence + 1);
    }
  }
};

/// A length in memory as far as the call allows it.
[[nodiscard]] __device__ inline int allowed_length(const Call& call, int kv_len) {
  return max(0, min(kv_len, call.max_kv_len));
}

/// A row block of one query that sees all keys, as where `Call::one_block_sees_all`.
[[nodiscard]] __device__ inline RowBlock block_that_sees_all(const Call& call, int kv_len) {
  return {kv_len, call.max_q_len, 0, {0, kv_len}};
}

[[nodiscard]] __device__ inline RowBlock row_block_of(const Call& call, int row_block, int tile_m,
                                                      const LoadedLengths& loaded) {
  RowBlock result = block_that_sees_all(call, allowed_length(call, loaded.kv_len));
  if (call.one_block_sees_all) return result;
  if (call.q_offsets.data != nullptr) {
    result.first_query = loaded.first_query;
    result.q_len = min(loaded.end_query - loaded.first_query, call.max_q_len);
  }
  const int sequence = row_block / call.blocks_per_sequence;
  const int block = row_block - sequence * call.blocks_per_sequence.value();
  const Range32 rows = rows_of_block(call, result.q_len, block, tile_m);
  const int position = result.kv_len - result.q_len;
  result.keys = {};
  if (rows.empty()) return result;
  result.keys = visible_keys(call.window, position + rows.begin / call.group,
                             position + (rows.end - 1) / call.group, result.kv_len);
  return result;
}

[[nodiscard]] __device__ inline RowBlock row_block_of(const Call& call, int row_block, int tile_m) {
  LoadedLengths loaded;
  loaded.load(call, row_block);
  return row_block_of(call, row_block, tile_m, loaded);
}

/// LeanTiles that hold a row block's keys.
[[nodiscard]] __device__ inline int num_lean_tiles(const Call& call, const RowBlock& block) {
  if (block.keys.empty()) return 0;
  return (block.keys.end - 1) / call.tile_n + 1 - block.keys.begin / call.tile_n;
}
/// The same where the row block sees all of `kv_len` keys.
[[nodiscard]] __device__ inline int num_lean_tiles(const Call& call, int kv_len) {
  return (kv_len + call.tile_n.value() - 1) / call.tile_n;
}

/// A row block and where its LeanTiles lie in the line.
struct PlacedBlock {
  int index = 0;
  RowBlock block;
  int before = 0;  // LeanTiles of the line before it
  int size = 0;    // its own
};

/// Neighbouring row blocks, one a lane, or the same one in all; up to 4 a lane where a length says
/// all of a row block (`Call::early_lengths`).
class LineWindow {
 public:
  /// What takes longest begins first: loads each lane's first length, where that alone says what
  /// there is to load.
  __device__ void load_early(const Call& call) {
    const int mine = lane_id() * call.window_step;
    if (call.early_lengths != nullptr && mine < call.num_row_blocks) {
      kv_lens_[0] = *length(call, mine);
    }
  }
  /// And the others of all row blocks of the call.
  __device__ void load(const Call& call) {
    stride_ = call.window_stride;
    same_ = call.window_step == 0;
    const int mine = lane_id() * call.window_step;
    if (call.early_lengths == nullptr) {
      if (mine < call.num_row_blocks) loaded_.load(call, mine);
      return;
    }
    if (stride_ == 1) return;
#pragma unroll
    for (int i = 1; i < kMostOfLane; ++i) {
      if (i < stride_ && mine + i < call.num_row_blocks) kv_lens_[i] = *length(call, mine + i);
    }
  }
  /// Those of one row block, for all lanes.
  __device__ void load_same(const Call& call, int row_block) {
    first_ = row_block;
    same_ = true;
    loaded_.load(call, row_block);
  }

  /// One a lane, which `mine` is this lane's of.
  __device__ void hold(const PlacedBlock& mine) {
    first_ = mine.index - lane_id();
    stride_ = 1;
    block_ = mine.block;
    before_ = mine.before;
    size_ = mine.size;
  }

  /// Places them in the line, of which `before` LeanTiles lie before the first.
  __device__ void lay_out(const Call& call, int tile_m, int before) {
    if (call.early_lengths != nullptr) {
      size_ = 0;
#pragma unroll
      for (int i = 0; i < kMostOfLane; ++i) {
        if (i >= stride_) break;
        kv_lens_[i] = allowed_length(call, kv_lens_[i]);
        size_ += num_lean_tiles(call, kv_lens_[i]);
      }
    } else if (const int mine = first_ + (same_ ? 0 : lane_id()); mine < call.num_row_blocks) {
      block_ = row_block_of(call, mine, tile_m, loaded_);
      size_ = num_lean_tiles(call, block_);
    }
    before_ = before;
    if (!same_) before_ += inclusive_sum(size_) - size_;
  }

  /// The lane whose LeanTiles hold `place`, each LeanTile counted `scale` times; −1: none.
  [[nodiscard]] __device__ int find(int place, int scale) const {
    if (same_) return 0;
    const bool mine = before_ * scale <= place && place < (before_ + size_) * scale;
    return __ffs(static_cast<int>(__ballot_sync(kAllLanes, mine))) - 1;
  }
  /// The row block that holds `place`, of the lane that `find` said.
  [[nodiscard]] __device__ PlacedBlock at(const Call& call, int lane, int place, int scale) const {
    return call.early_lengths != nullptr ? at_length(call, lane, place, scale) : at_lane(lane);
  }

  /// LeanTiles of the line up to the last one's.
  [[nodiscard]] __device__ int end() const {
    return same_ ? before_ + size_ : shuffle(before_ + size_, kLanes - 1);
  }
  /// Whether some row block has none.
  [[nodiscard]] __device__ bool some_empty(const Call& call) const {
    const int mine = first_ + (same_ ? 0 : lane_id() * stride_);
    bool empty = size_ == 0 && mine < call.num_row_blocks;
#pragma unroll
    for (int i = 0; i < kMostOfLane; ++i) {
      if (stride_ == 1 || i >= stride_) break;
      empty |= kv_lens_[i] == 0 && mine + i < call.num_row_blocks;
    }
    return __any_sync(kAllLanes, empty);
  }

 private:
  /// The early length of a sequence.
  [[nodiscard]] static __device__ const std::int32_t* length(const Call& call, int sequence) {
    const auto* lengths = static_cast<const std::byte*>(call.early_lengths);
    return reinterpret_cast<const std::int32_t*>(
        lengths + (static_cast<unsigned>(sequence) << call.lengths.shift));
  }

  [[nodiscard]] __device__ PlacedBlock at_length(const Call& call, int lane, int place,
                                                 int scale) const {
    int kv_len = kv_lens_[0];
    int before = before_;
    int nth = 0;  // of the lane's
    if (stride_ > 1) {
      int end = before_;
#pragma unroll
      for (int i = 1; i < kMostOfLane; ++i) {
        end += num_lean_tiles(call, kv_lens_[i - 1]);
        if (end * scale <= place) nth = i, kv_len = kv_lens_[i], before = end;
      }
      nth = shuffle(nth, lane);
    }
    if (!same_) {
      kv_len = shuffle(kv_len, lane);
      before = shuffle(before, lane);
    }
    return {first_ + lane * stride_ + nth, block_that_sees_all(call, kv_len), before,
            num_lean_tiles(call, kv_len)};
  }
  [[nodiscard]] __device__ PlacedBlock at_lane(int lane) const {
    PlacedBlock found{first_ + lane, block_, before_, size_};
    if (same_) return found;
    RowBlock& block = found.block;
    block.kv_len = shuffle(block.kv_len, lane);
    block.q_len = shuffle(block.q_len, lane);
    block.first_query = shuffle(block.first_query, lane);
    block.keys = {shuffle(block.keys.begin, lane), shuffle(block.keys.end, lane)};
    found.before = shuffle(before_, lane);
    found.size = shuffle(size_, lane);
    return found;
  }

  int first_ = 0;   // row block of the first lane's first
  int stride_ = 1;  // row blocks of a lane
  bool same_ = false;
  int kv_lens_[kMostOfLane] = {};  // of the lane's row blocks, if early
  LoadedLengths loaded_;           // of its one row block else
  RowBlock block_;
  int before_ = 0;  // LeanTiles of the line before this lane's
  int size_ = 0;
};

/// LeanTiles of `count` row blocks from `first` on.
[[nodiscard]] __device__ inline int num_lean_tiles_of(const Call& call, int tile_m, int first,
                                                      int count) {
  constexpr int kAtOnce = 4;  // loads in flight
  int size = 0;
#pragma unroll 1
  for (; count > 0; count -= kAtOnce, first += kAtOnce) {
    LoadedLengths loaded[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i < count && first + i < call.num_row_blocks) loaded[i].load(call, first + i);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= count || first + i >= call.num_row_blocks) break;
      size += num_lean_tiles(call, row_block_of(call, first + i, tile_m, loaded[i]));
    }
  }
  return size;
}

/// A line of more row blocks than a window holds is 32 stretches, one a lane, of so many row
/// blocks each. A warp sums up those of at most 4; else it is a multiple of 32.
inline constexpr int kMostOfStretch = 4;
[[nodiscard]] __device__ inline int row_blocks_of_stretch(const Call& call) {
  const int count = ceil_div_int(call.num_row_blocks, kLanes);
  return count <= kMostOfStretch ? count : ceil_div_int(count, kLanes) * kLanes;
}
/// Whether a warp does not sum up the line by itself.
[[nodiscard]] __device__ inline bool is_long_line(const Call& call) {
  return call.kind == PartitionKind::kStreamK && call.num_row_blocks > kMostOfStretch * kLanes;
}

/// What the warps of a block tell each other of a long line.
struct Line {
  int sizes[kLanes];  // LeanTiles of its stretches
};

/// Fills `line`; with all threads of the block. Out of line, as everything that a common
/// call does not come through: instructions are fetched from memory, too.
static __device__ __noinline__ void lay_out_line(const Call& call, int tile_m, Line& line) {
  const int stretch = row_blocks_of_stretch(call);
  const int of_lane = stretch / kLanes;
  for (int i = warp_id(); i < kLanes; i += num_warps()) {
    const int first = i * stretch + lane_id() * of_lane;
    const int size = __reduce_add_sync(kAllLanes, num_lean_tiles_of(call, tile_m, first, of_lane));
    if (lane_id() == 0) line.sizes[i] = size;
  }
  __syncthreads();
}

/// What a lane knows of the line.
struct SummedLine {
  int before;  // LeanTiles before this lane's stretch
  int size;    // of all
};

/// `line` was filled if it is long.
static __device__ __noinline__ SummedLine sum_up_line(const Call& call, const Line& line,
                                                      int tile_m) {
  const int stretch = row_blocks_of_stretch(call);
  const int size = is_long_line(call)
                       ? line.sizes[lane_id()]
                       : num_lean_tiles_of(call, tile_m, lane_id() * stretch, stretch);
  const int end = inclusive_sum(size);
  return {end - size, shuffle(end, kLanes - 1)};
}

/// This lane's row block in a window that holds `place` of the line; `before` as `sum_up_line` has
/// it.
static __device__ __noinline__ PlacedBlock seek_line(const Call& call, int before, int tile_m,
                                                     int place) {
  int first = 0;
  for (int stretch = row_blocks_of_stretch(call);;) {
    // The last stretch with before ≤ place: one without a LeanTile has what its next has.
    const int lane = __popc(__ballot_sync(kAllLanes, before <= place)) - 1;
    const int before_first = shuffle(before, lane);
    first += lane * stretch;
    if (stretch <= kLanes) {
      PlacedBlock mine;
      mine.index = first + lane_id();
      if (mine.index < call.num_row_blocks) {
        mine.block = row_block_of(call, mine.index, tile_m);
        mine.size = num_lean_tiles(call, mine.block);
      }
      mine.before = before_first + inclusive_sum(mine.size) - mine.size;
      return mine;
    }
    stretch = ceil_div_int(stretch, kLanes);
    const int size = num_lean_tiles_of(call, tile_m, first + lane_id() * stretch, stretch);
    before = before_first + inclusive_sum(size) - size;
  }
}

}  // namespace leanattn::cuda
