// Which LeanTiles are this worker's: found on the device from the lengths, with the
// functions of partition.h. Every warp follows the same cursor by itself.
//
// A row block is (sequence, block of packed query rows), numbered sequence by
// sequence with room for the most blocks of any; those a sequence lacks have no
// LeanTile. The row blocks' LeanTiles of one KV head, end to end, are the line.
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
  return {block * tile_m, min((block + 1) * tile_m, q_len * call.group)};
}

[[nodiscard]] __device__ inline Range32 visible_to_rows(const Call& call, int kv_len, int q_len,
                                                        Range32 rows) {
  if (rows.empty()) return {};
  const int position = kv_len - q_len;
  const Range keys = visible_keys(call.window, position + rows.begin / call.group,
                                  position + (rows.end - 1) / call.group, kv_len);
  return {static_cast<int>(keys.begin), static_cast<int>(keys.end)};
}

[[nodiscard]] __device__ inline RowBlock row_block_of(const Call& call, int row_block, int tile_m) {
  const int sequence = row_block / call.blocks_per_sequence;
  const int block = row_block - sequence * call.blocks_per_sequence;
  RowBlock result;
  result.kv_len = max(0, min(load_index(call.lengths, sequence), call.max_kv_len));
  result.q_len = call.max_q_len;
  if (call.q_offsets.data != nullptr) {
    result.first_query = load_index(call.q_offsets, sequence);
    result.q_len =
        min(load_index(call.q_offsets, sequence + 1) - result.first_query, call.max_q_len);
  }
  result.keys = visible_to_rows(call, result.kv_len, result.q_len,
                                rows_of_block(call, result.q_len, block, tile_m));
  return result;
}

/// LeanTiles of the line before groups of row blocks, in shared memory; only where there
/// are more row blocks than lanes. A group is 32 row blocks, or a multiple where there
/// would be too many groups.
struct Line {
  static constexpr int kMaxGroups = 512;
  int before[kMaxGroups + 1];
};

[[nodiscard]] __device__ inline int line_group_size(const Call& call) {
  return max(1, ceil_div_int(call.num_row_blocks, kLanes * Line::kMaxGroups)) * kLanes;
}
[[nodiscard]] __device__ inline int num_line_groups(const Call& call) {
  return ceil_div_int(call.num_row_blocks, line_group_size(call));
}

/// Fills `line`; with all threads of the block.
__device__ inline void lay_out_line(const Call& call, int tile_m, Line& line) {
  const int groups = num_line_groups(call);
  const int group_size = line_group_size(call);
  for (int group = warp_id(); group < groups; group += num_warps()) {
    int size = 0;
    for (int i = lane_id(); i < group_size; i += kLanes) {
      const int row_block = group * group_size + i;
      if (row_block >= call.num_row_blocks) break;
      size += lean_tiles_of_keys(row_block_of(call, row_block, tile_m).keys, call.tile_n).size();
    }
    size = __reduce_add_sync(kAllLanes, size);
    if (lane_id() == 0) line.before[group + 1] = size;
  }
  __syncthreads();
  if (warp_id() == 0) {
    int sum = 0;
    for (int first = 0; first < groups; first += kLanes) {
      const int group = first + lane_id();
      const int before = sum + inclusive_sum(group < groups ? line.before[group + 1] : 0);
      if (group < groups) line.before[group + 1] = before;
      sum = shuffle(before, kLanes - 1);
    }
    if (lane_id() == 0) line.before[0] = 0;
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
    first = first_block;
    block = {};
    size = 0;
    const int mine = first_block + lane_id();
    if (mine < call.num_row_blocks) {
      block = row_block_of(call, mine, tile_m);
      size = lean_tiles_of_keys(block.keys, call.tile_n).size();
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

/// Steps through the segments of a worker.
class Cursor {
 public:
  /// `line` was filled by `lay_out_line` if the call has more row blocks than a warp lanes.
  __device__ Cursor(const Call& call, int tile_m, const Line& line, int worker)
      : call_(call), line_(line), tile_m_(tile_m) {
    if (call.kind == PartitionKind::kStreamK) {
      start_stream_k(worker);
    } else {
      start_in_tile(worker);
    }
  }

  [[nodiscard]] __device__ bool done() const { return next_ >= end_; }

  /// The segment that begins where the last one ended. Not when done.
  [[nodiscard]] __device__ Segment next() {
    if (call_.kind != PartitionKind::kStreamK) {
      const Range32 share{next_, call_.batch_invariant ? next_ + 1 : end_};
      next_ = share.end;
      return make_segment(index_ / call_.num_kv_heads, window_.block,
                          index_ % call_.num_kv_heads, {0, window_.size}, share);
    }
    const bool turns = call_.order == Order::kHeadSynchronous;
    const int scale = turns ? 1 : call_.num_kv_heads;
    const int place = next_ - line_begin_;
    const int lane = seek(place, scale);
    const int before = shuffle(window_.before, lane) * scale;
    const int size = shuffle(window_.size, lane);
    const int nth_head = turns ? 0 : (place - before) / size;
    const int begin = line_begin_ + before + nth_head * size;
    RowBlock block;
    block.kv_len = shuffle(window_.block.kv_len, lane);
    block.q_len = shuffle(window_.block.q_len, lane);
    block.first_query = shuffle(window_.block.first_query, lane);
    block.keys = {shuffle(window_.block.keys.begin, lane), shuffle(window_.block.keys.end, lane)};
    // batch_invariant: cuts depend on keys alone, so every LeanTile is a partial of its own.
    const Range32 ids{next_, call_.batch_invariant ? next_ + 1 : min(end_, begin + size)};
    next_ = ids.end;
    return make_segment(window_.first + lane, block, head_ + nth_head, {begin, begin + size}, ids);
  }

  /// The worker of a LeanTile of stream_k.
  [[nodiscard]] __device__ int worker_of(int id) const {
    return stream_k_worker(call_.order, per_head_, call_.num_kv_heads, num_workers_, id);
  }

 private:
  /// A share of one output tile, whose block and size are kept in the window.
  __device__ void start_in_tile(int worker) {
    index_ = worker / call_.num_splits;
    const int row_block = index_ / call_.num_kv_heads;
    if (row_block >= call_.num_row_blocks) return;
    window_.block = row_block_of(call_, row_block, tile_m_);
    window_.size = lean_tiles_of_keys(window_.block.keys, call_.tile_n).size();
    const Range32 share =
        even_share(window_.size, call_.num_splits, worker - index_ * call_.num_splits);
    next_ = share.begin;
    end_ = share.end;
  }

  __device__ void start_stream_k(int worker) {
    if (call_.num_row_blocks <= kLanes) {
      window_.load(call_, tile_m_, 0, 0);
      per_head_ = window_.end();
    } else {
      per_head_ = line_.before[num_line_groups(call_)];
    }
    const int heads = call_.num_kv_heads;
    const bool turns = call_.order == Order::kHeadSynchronous;
    // A worker more than there are LeanTiles would only be one more to merge.
    num_workers_ = turns ? min(call_.num_workers / heads, per_head_) * heads
                         : min(call_.num_workers, per_head_ * heads);
    if (worker >= num_workers_) return;
    const Range32 range = stream_k_range(call_.order, per_head_, heads, num_workers_, worker);
    head_ = turns ? worker % heads : 0;
    line_begin_ = head_ * per_head_;
    next_ = range.begin;
    end_ = range.end;
  }

  /// The lane whose row block holds `place`; moves the window there first.
  [[nodiscard]] __device__ int seek(int place, int scale) {
    int lane = window_.find(place, scale);
    if (lane >= 0) return lane;
    const int in_line = place / scale;
    const int groups = num_line_groups(call_);
    int group = 0;  // the last with before ≤ in_line
    for (int first = 0; first < groups; first += kLanes) {
      const int mine = first + lane_id();
      const bool starts = mine < groups && line_.before[mine] <= in_line;
      group += __popc(__ballot_sync(kAllLanes, starts));
    }
    --group;
    int before = line_.before[group];
    for (int first = group * line_group_size(call_);; first += kLanes) {
      window_.load(call_, tile_m_, first, before);
      lane = window_.find(place, scale);
      if (lane >= 0) return lane;
      before = window_.end();
    }
  }

  [[nodiscard]] __device__ Segment make_segment(int row_block, const RowBlock& block, int head,
                                                Range32 tile, Range32 ids) const {
    const int sequence = row_block / call_.blocks_per_sequence;
    const int first = block.keys.begin / call_.tile_n - tile.begin;  // LeanTile of id 0
    const Range32 keys = intersect(
        block.keys, {(first + ids.begin) * call_.tile_n, (first + ids.end) * call_.tile_n});
    return {sequence, row_block - sequence * call_.blocks_per_sequence, head, block, tile, ids,
            keys};
  }

  const Call& call_;
  const Line& line_;
  int tile_m_;
  LineWindow window_;
  int per_head_ = 0;  // LeanTiles of the line
  int num_workers_ = 0;
  int head_ = 0;        // head-synchronous: the worker's; else 0
  int line_begin_ = 0;  // id of the line's first LeanTile
  int index_ = 0;       // one_tile and fixed_split: the output tile's
  int next_ = 0;        // ids to come
  int end_ = 0;
};

}  // namespace leanattn::cuda
