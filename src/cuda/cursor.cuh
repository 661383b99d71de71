// Which LeanTiles are this worker's: found on the device from the lengths, with the
// functions of partition.h. Every warp follows the same cursor by itself.
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
  /// Until then the load takes the time of what does not need it.
  __device__ void wait() const { asm volatile("" ::"r"(kv_len)); }
};

[[nodiscard]] __device__ inline RowBlock row_block_of(const Call& call, int row_block, int tile_m,
                                                      const LoadedLengths& loaded) {
  RowBlock result;
  result.kv_len = max(0, min(loaded.kv_len, call.max_kv_len));
  result.q_len = call.max_q_len;
  if (call.one_query_sees_all) {
    result.keys = {0, result.kv_len};
    return result;
  }
  if (call.q_offsets.data != nullptr) {
    result.first_query = loaded.first_query;
    result.q_len = min(loaded.end_query - loaded.first_query, call.max_q_len);
  }
  const int sequence = row_block / call.blocks_per_sequence;
  const int block = row_block - sequence * call.blocks_per_sequence.value();
  const Range32 rows = rows_of_block(call, result.q_len, block, tile_m);
  if (rows.empty()) return result;
  const int position = result.kv_len - result.q_len;
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

/// LeanTiles of the row blocks from `first` on, `count` of them.
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

/// Of so many row blocks a warp sums up the line by itself.
inline constexpr int kMostOfAWarp = 4 * kLanes;

/// A line of more row blocks than lanes is 32 stretches, one a lane, of so many row blocks each:
/// at most 4, or a multiple of 32.
[[nodiscard]] __device__ inline int stretch_stride(const Call& call) {
  const int stride = ceil_div_int(call.num_row_blocks, kLanes);
  return stride <= kMostOfAWarp / kLanes ? stride : ceil_div_int(stride, kLanes) * kLanes;
}

/// What the warps of a block tell each other of a line that is too long for one of them.
struct Line {
  int sizes[kLanes];  // LeanTiles of the stretches that make the whole line
};

/// Fills `line`; with all threads of the block. Out of line, as everything that a common
/// call does not come through: instructions are fetched from memory, too.
static __device__ __noinline__ void lay_out_line(const Call& call, int tile_m, Line& line) {
  const int stride = stretch_stride(call);
  const int of_lane = stride / kLanes;
  for (int i = warp_id(); i < kLanes; i += num_warps()) {
    const int first = i * stride + lane_id() * of_lane;
    const int size = __reduce_add_sync(kAllLanes, num_lean_tiles_of(call, tile_m, first, of_lane));
    if (lane_id() == 0) line.sizes[i] = size;
  }
  __syncthreads();
}

/// 32 neighbouring row blocks, one a lane, and where their LeanTiles lie in the line.
struct LineWindow {
  RowBlock block;
  int first = 0;   // row block of lane 0
  int before = 0;  // LeanTiles of the line before this lane's
  int size = 0;

  __device__ void load(const Call& call, int tile_m, int first_block, int before_first) {
    LoadedLengths loaded;
    const int mine = first_block + lane_id();
    if (mine < call.num_row_blocks) loaded.load(call, mine);
    lay_out(call, tile_m, first_block, before_first, loaded);
  }
  /// `load` with what the lane's row block has in memory.
  __device__ void lay_out(const Call& call, int tile_m, int first_block, int before_first,
                          const LoadedLengths& loaded) {
    first = first_block;
    block = {};
    size = 0;
    const int mine = first_block + lane_id();
    if (mine < call.num_row_blocks) {
      block = row_block_of(call, mine, tile_m, loaded);
      size = num_lean_tiles(call, block);
    }
    before = before_first + inclusive_sum(size) - size;
  }
  /// The lane whose LeanTiles hold `place`, each lane's counted `scale` times; −1: none.
  [[nodiscard]] __device__ int find(int place, int scale) const {
    const bool mine = before * scale <= place && place < (before + size) * scale;
    return __ffs(static_cast<int>(__ballot_sync(kAllLanes, mine))) - 1;
  }
  [[nodiscard]] __device__ int end() const { return shuffle(before + size, kLanes - 1); }
};

/// What a lane knows of the 32 stretches that make the line.
struct SummedLine {
  int before;  // LeanTiles before this lane's
  int size;    // of all
};

/// `line` holds their sizes if a warp does not suffice.
static __device__ __noinline__ SummedLine sum_up_line(const Call& call, const Line& line,
                                                      int tile_m) {
  const int stride = stretch_stride(call);
  const int size = call.num_row_blocks > kMostOfAWarp
                       ? line.sizes[lane_id()]
                       : num_lean_tiles_of(call, tile_m, lane_id() * stride, stride);
  const int end = inclusive_sum(size);
  return {end - size, shuffle(end, kLanes - 1)};
}

/// The window that holds `place` of the line; `before` as `sum_up_line` has it.
static __device__ __noinline__ LineWindow seek_line(const Call& call, int before, int tile_m,
                                                    int place) {
  int first = 0;
  for (int stride = stretch_stride(call);;) {
    // The last stretch with before ≤ place: one without a LeanTile has what its next has.
    const int lane = __popc(__ballot_sync(kAllLanes, before <= place)) - 1;
    const int before_first = shuffle(before, lane);
    first += lane * stride;
    if (stride <= kLanes) {
      LineWindow window;
      window.load(call, tile_m, first, before_first);
      return window;
    }
    stride = ceil_div_int(stride, kLanes);
    const int size = num_lean_tiles_of(call, tile_m, first + lane_id() * stride, stride);
    before = before_first + inclusive_sum(size) - size;
  }
}

/// A work range ∩ one output tile; the same in all lanes.
struct Segment {
  int sequence = 0;
  int row_block = 0;  // within the sequence
  int kv_head = 0;
  RowBlock block;
  Range32 tile;  // ids of the output tile's LeanTiles
  Range32 ids;   // of these, the segment's
  Range32 keys;  // the segment's visible keys

  [[nodiscard]] __device__ bool whole() const { return ids == tile; }
};

/// Steps through the segments of a place for workers: a block, or a cluster of them. Of
/// stream_k a place may have several workers, one after the other (claims.cuh).
class Cursor {
 public:
  /// Loads lengths. `line` was filled by `lay_out_line` if a warp does not suffice for the call.
  __device__ Cursor(const Call& call, int tile_m, const Line& line, int place)
      : call_(call), line_(line), tile_m_(tile_m), worker_(place) {
    if (call.kind != PartitionKind::kStreamK) {
      const int row_block = worker_ / call.num_splits / call.num_kv_heads;
      if (row_block < call.num_row_blocks) loaded_.load(call, row_block);
    } else if (call.num_row_blocks <= kMostOfAWarp) {
      // Of more row blocks than lanes the others come with the first of a stretch.
      const int mine = lane_id() * stretch_stride(call);
      if (mine < call.num_row_blocks) loaded_.load(call, mine);
    }
  }
  /// Before all that follows; between the constructor and this there is time for other things.
  __device__ void start() {
    if (call_.kind == PartitionKind::kStreamK) {
      lay_out_stream_k();
      if (worker_ < num_workers_) start_share();
    } else {
      start_in_tile();
    }
  }

  /// Whether there is no segment left. `worker_after(worker)` is whose share this place takes
  /// once that worker's has ended. Not again once it was true.
  template <class WorkerAfter>
  [[nodiscard]] __device__ bool done(WorkerAfter&& worker_after) {
    if (next_ < end_) return false;
    worker_ = worker_after(worker_);
    if (worker_ >= num_workers_) return true;
    start_share();
    return false;
  }
  /// Of stream_k, those that have a share.
  [[nodiscard]] __device__ int num_workers() const { return num_workers_; }
  /// Of the segment that `next` last gave.
  [[nodiscard]] __device__ int worker() const { return worker_; }

  /// Whether some row block may lack LeanTiles, so that no worker comes by its rows.
  [[nodiscard]] __device__ bool maybe_empty_blocks() const {
    if (call_.kind != PartitionKind::kStreamK || call_.num_row_blocks > kLanes) return true;
    return __any_sync(kAllLanes, lane_id() < call_.num_row_blocks && window_.size == 0);
  }

  /// The segment that begins where the last one ended. Not when done.
  [[nodiscard]] __device__ Segment next() {
    const bool by_tile = call_.kind != PartitionKind::kStreamK;
    const int scale = call_.num_lines.value() > 1 ? 1 : call_.num_kv_heads.value();
    const int place = next_ - line_begin_;
    // By tile the window holds that one row block in every lane, with nothing before it.
    const int lane = by_tile ? 0 : seek(place, scale);
    const int before = by_tile ? 0 : shuffle(window_.before, lane) * scale;
    const int size = shuffle(window_.size, lane);
    const int nth_head = by_tile || scale == 1 ? 0 : (place - before) / size;
    Segment segment;
    segment.block.kv_len = shuffle(window_.block.kv_len, lane);
    segment.block.q_len = shuffle(window_.block.q_len, lane);
    segment.block.first_query = shuffle(window_.block.first_query, lane);
    segment.block.keys = {shuffle(window_.block.keys.begin, lane),
                          shuffle(window_.block.keys.end, lane)};
    const int row_block = window_.first + lane;
    segment.sequence = row_block / call_.blocks_per_sequence;
    segment.row_block = row_block - segment.sequence * call_.blocks_per_sequence.value();
    segment.kv_head = head_ + nth_head;
    segment.tile.begin = line_begin_ + before + nth_head * size;
    segment.tile.end = segment.tile.begin + size;
    // batch_invariant: cuts depend on keys alone, so every LeanTile is a partial of its own.
    segment.ids = {next_, call_.batch_invariant ? next_ + 1 : min(end_, segment.tile.end)};
    next_ = segment.ids.end;
    const int first = segment.block.keys.begin / call_.tile_n - segment.tile.begin;  // of id 0
    segment.keys =
        intersect(segment.block.keys, {(first + segment.ids.begin) * call_.tile_n.value(),
                                       (first + segment.ids.end) * call_.tile_n.value()});
    return segment;
  }

  /// The worker of a LeanTile of stream_k.
  [[nodiscard]] __device__ int worker_of(int id) const {
    return share_of(line_size_, shares_, id - line_begin_) * call_.num_lines.value() + line_index_;
  }

 private:
  /// A share of one output tile.
  __device__ void start_in_tile() {
    const int index = worker_ / call_.num_splits;
    const int row_block = index / call_.num_kv_heads;
    if (row_block >= call_.num_row_blocks) return;
    head_ = index - row_block * call_.num_kv_heads.value();
    window_.first = row_block;
    window_.block = row_block_of(call_, row_block, tile_m_, loaded_);
    window_.size = num_lean_tiles(call_, window_.block);
    const Range32 share =
        even_share(window_.size, call_.num_splits, worker_ - index * call_.num_splits.value());
    next_ = share.begin;
    end_ = share.end;
  }

  __device__ void lay_out_stream_k() {
    int per_head = 0;
    if (call_.num_row_blocks <= kLanes) {
      window_.lay_out(call_, tile_m_, 0, 0, loaded_);
      per_head = window_.end();
    } else {
      loaded_.wait();
      const SummedLine summed = sum_up_line(call_, line_, tile_m_);
      before_lane_ = summed.before;
      per_head = summed.size;
    }
    const int lines = call_.num_lines.value();
    line_size_ = lines > 1 ? per_head : per_head * call_.num_kv_heads.value();
    // A worker more than there are LeanTiles would only be one more to merge: then every
    // share is one LeanTile.
    shares_ = min(call_.shares_of_line.value(), line_size_);
    num_workers_ = shares_ * lines;
  }

  /// The share of worker_, which has one.
  __device__ void start_share() {
    const int share = worker_ / call_.num_lines;
    line_index_ = worker_ - share * call_.num_lines.value();
    line_begin_ = line_index_ * line_size_;
    head_ = line_index_;
    const Range32 range = shares_ < call_.shares_of_line.value()
                              ? Range32{share, share + 1}
                              : even_share(line_size_, call_.shares_of_line, share);
    next_ = line_begin_ + range.begin;
    end_ = line_begin_ + range.end;
  }

  /// The lane whose row block holds `place`; moves the window there first.
  [[nodiscard]] __device__ int seek(int place, int scale) {
    int lane = window_.find(place, scale);
    if (lane < 0) {
      window_ = seek_line(call_, before_lane_, tile_m_, place / scale);
      lane = window_.find(place, scale);
    }
    return lane;
  }

  const Call& call_;
  const Line& line_;
  int tile_m_;
  LoadedLengths loaded_;
  LineWindow window_;
  int before_lane_ = 0;  // LeanTiles of the line before this lane's stretch
  int line_size_ = 0;
  int line_begin_ = 0;  // id of the line's first LeanTile
  int line_index_ = 0;
  int shares_ = 0;  // that are dealt of it
  int worker_;
  int num_workers_ = 0;  // of stream_k, those that have a share
  int head_ = 0;         // the KV head, or of a line of all heads the first
  int next_ = 0;         // ids to come
  int end_ = 0;
};

}  // namespace leanattn::cuda
