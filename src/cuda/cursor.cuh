// Which LeanTiles are this worker's: its ranges of the line (line.cuh), with the functions of
// partition.h, and the segments that they fall into. Every warp follows the same cursor by itself.
#pragma once

#include "cuda/line.cuh"

namespace leanattn::cuda {

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

/// Packed rows of a segment's output tile, among those of the sequence.
[[nodiscard]] __device__ inline Range32 rows_of(const Call& call, const Segment& segment,
                                                int tile_m) {
  if (call.one_block_sees_all) return {0, call.group.value()};
  return rows_of_block(call, segment.block.q_len, segment.row_block, tile_m);
}

/// Steps through the segments of a place for workers: a block, or a cluster of them. Of
/// stream_k a place may have several workers, one after the other (claims.cuh).
class Cursor {
 public:
  /// Loads lengths, but for those that `window` has loaded early. `line` was filled by
  /// `lay_out_line` if it is long.
  __device__ Cursor(const Call& call, int tile_m, const Line& line, const LineWindow& window,
                    int place)
      : call_(call), line_(line), tile_m_(tile_m), window_(window), worker_(place) {
    if (call.kind == PartitionKind::kStreamK) {
      if (call.window_stride > 0) window_.load(call);
    } else {
      const int row_block = worker_ / call.num_splits / call.num_kv_heads;
      if (row_block < call.num_row_blocks) window_.load_same(call, row_block);
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
    if (call_.kind != PartitionKind::kStreamK || call_.window_stride == 0) return true;
    return window_.some_empty(call_);
  }

  /// The segment that begins where the last one ended. Not when done.
  [[nodiscard]] __device__ Segment next() {
    const bool by_tile = call_.kind != PartitionKind::kStreamK;
    const int scale = call_.heads_of_line;
    const int place = next_ - line_begin_;
    const PlacedBlock found = block_at(place, scale);
    const int before = found.before * scale;
    const int nth_head = by_tile || scale == 1 ? 0 : (place - before) / found.size;
    Segment segment;
    segment.block = found.block;
    segment.sequence =
        call_.one_block_sees_all ? found.index : found.index / call_.blocks_per_sequence;
    segment.row_block = call_.one_block_sees_all
                            ? 0
                            : found.index - segment.sequence * call_.blocks_per_sequence.value();
    segment.kv_head = head_ + nth_head;
    segment.tile.begin = line_begin_ + before + nth_head * found.size;
    segment.tile.end = segment.tile.begin + found.size;
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
  /// A share of one output tile, which is then all of the line.
  __device__ void start_in_tile() {
    const int index = worker_ / call_.num_splits;
    const int row_block = index / call_.num_kv_heads;
    if (row_block >= call_.num_row_blocks) return;
    head_ = index - row_block * call_.num_kv_heads.value();
    window_.lay_out(call_, tile_m_, 0);
    const Range32 share =
        even_share(window_.end(), call_.num_splits, worker_ - index * call_.num_splits.value());
    next_ = share.begin;
    end_ = share.end;
  }

  __device__ void lay_out_stream_k() {
    int per_head = 0;
    if (call_.window_stride > 0) {
      window_.lay_out(call_, tile_m_, 0);
      per_head = window_.end();
    } else {
      const SummedLine summed = sum_up_line(call_, line_, tile_m_);
      before_stretch_ = summed.before;
      per_head = summed.size;
    }
    const int lines = call_.num_lines.value();
    line_size_ = per_head * call_.heads_of_line;
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

  /// The row block that holds `place`; moves the window there if it has to.
  [[nodiscard]] __device__ PlacedBlock block_at(int place, int scale) {
    int lane = window_.find(place, scale);
    if (call_.window_stride == 0 && lane < 0) {
      window_.hold(seek_line(call_, before_stretch_, tile_m_, place / scale));
      lane = window_.find(place, scale);
    }
    return window_.at(call_, lane, place, scale);
  }

  const Call& call_;
  const Line& line_;
  int tile_m_;
  LineWindow window_;
  int before_stretch_ = 0;  // of a line that a window does not hold, see sum_up_line
  int line_size_ = 0;
  int line_begin_ = 0;  // id of the line's first LeanTile
  int line_index_ = 0;
  int shares_ = 0;  // that are dealt of it
  int worker_;
  int num_workers_ = 0;
  int head_ = 0;  // the KV head, or of a line of all heads the first
  int next_ = 0;  // ids to come
  int end_ = 0;
};

}  // namespace leanattn::cuda
