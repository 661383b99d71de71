// How the states of an output tile come together: the warps of a block in shared memory,
// and the workers that share the tile through the workspace, where the last to arrive
// merges; the blocks of a cluster are cluster_inbox.cuh's. The algebra is softmax_state.h.
//
// Everything is done position by position (4 elements of a row): a thread takes one
// position from all partners, so all threads merge at once, and a warp's 32 positions,
// a slice, are published, counted and merged without waiting for other warps.
#pragma once

#include "cuda/output.cuh"

namespace leanattn::cuda {

/// Merges positions 0 to count − 1, in this order, kWidth at a time: as many loads are in
/// flight. place(i) has a state() and an out(), which is 0 where the state is empty.
template <int kWidth, class Place>
[[nodiscard]] __device__ Position merge_positions(int count, const Place& place) {
  Position merged;
#pragma unroll 1
  for (int first = 0; first < count; first += kWidth) {
    SoftmaxState states[kWidth + 1];
    float4 outs[kWidth + 1];
    states[0] = merged.state;
    outs[0] = merged.out;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      outs[i + 1] = float4{};
      if (first + i < count) {
        const auto at = place(first + i);
        states[i + 1] = at.state();
        outs[i + 1] = at.out();
      }
    }
    float scales[kWidth + 1];
    merged.state = merge_all(states, scales);
    merged.out = float4{};
#pragma unroll
    for (int i = 0; i <= kWidth; ++i) {
      merged.out.x += outs[i].x * scales[i];
      merged.out.y += outs[i].y * scales[i];
      merged.out.z += outs[i].z * scales[i];
      merged.out.w += outs[i].w * scales[i];
    }
  }
  return merged;
}

/// `merge_positions` of at most kMost, all at once.
template <int kMost, class Place>
[[nodiscard]] __device__ Position merge_few_positions(int count, const Place& place) {
  SoftmaxState states[kMost];
  float4 outs[kMost];
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    outs[i] = float4{};
    if (i < count) {
      const auto at = place(i);
      states[i] = at.state();
      outs[i] = at.out();
    }
  }
  float scales[kMost];
  Position merged;
  merged.state = merge_all(states, scales);
#pragma unroll
  for (int i = 0; i < kMost; ++i) {
    merged.out.x += outs[i].x * scales[i];
    merged.out.y += outs[i].y * scales[i];
    merged.out.z += outs[i].z * scales[i];
    merged.out.w += outs[i].w * scales[i];
  }
  return merged;
}

/// A slice of a partial in the workspace.
class SlicePlace {
 public:
  __device__ SlicePlace(const Call& call, std::int64_t slot, int slice)
      : at_(call.partials + (slot * call.num_slices + slice) * kSliceFloats) {}
  /// The one so many floats further.
  [[nodiscard]] __device__ SlicePlace after(std::int64_t floats) const {
    return SlicePlace(at_ + floats);
  }

  __device__ void store(const Position& position) const {
    __stcg(reinterpret_cast<float4*>(at_) + lane_id(), position.out);
    __stcg(reinterpret_cast<float2*>(at_ + 4 * kLanes) + lane_id(),
           float2{position.state.max, position.state.sum});
  }
  [[nodiscard]] __device__ float4 out() const {
    return __ldcg(reinterpret_cast<const float4*>(at_) + lane_id());
  }
  [[nodiscard]] __device__ SoftmaxState state() const {
    const float2 state = __ldcg(reinterpret_cast<const float2*>(at_ + 4 * kLanes) + lane_id());
    return {state.x, state.y};
  }

 private:
  __device__ explicit SlicePlace(float* at) : at_(at) {}
  float* at_;
};

/// A warp's arrival at a counter, after its writes so far and before its reads after `last`.
class Arrival {
 public:
  __device__ Arrival(std::uint32_t* counter, int count) : counter_(counter), count_(count) {
    __syncwarp();
    if (lane_id() == 0) {
      asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                   : "=r"(before_)
                   : "l"(counter), "r"(count)
                   : "memory");
    }
  }
  /// Whether it completes `total`; the counter is then 0 again. What does not need to know
  /// that comes before: it takes a while.
  [[nodiscard]] __device__ bool last(int total) const {
    bool last = false;
    if (lane_id() == 0) {
      last = before_ + static_cast<std::uint32_t>(count_) == static_cast<std::uint32_t>(total);
      if (last) *counter_ = 0;  // nobody else comes in this call
    }
    return __any_sync(kAllLanes, last);
  }

 private:
  std::uint32_t* counter_;
  int count_;
  std::uint32_t before_ = 0;
};

/// Who shares the output tile of a segment, and where their partials lie.
struct Partners {
  int count = 1;   // partials
  int first = 0;   // slot of the first
  int second = 0;  // and of the second
  int step = 1;    // from then on
  int mine = 0;
  int counter = 0;

  Partners() = default;
  __device__ Partners(const Call& call, const Cursor& cursor, const Segment& segment) {
    if (call.batch_invariant) {  // a slot for every LeanTile of every output tile
      const int index = (segment.sequence * call.blocks_per_sequence.value() + segment.row_block) *
                            call.num_kv_heads.value() +
                        segment.kv_head;
      const int per_tile = (call.max_kv_len - 1) / call.tile_n + 1;
      count = segment.tile.size();
      first = index * per_tile;
      second = first + 1;
      mine = first + segment.ids.begin - segment.tile.begin;
      counter = index;
      return;
    }
    if (call.kind != PartitionKind::kStreamK) {  // merged by another launch
      mine = cursor.worker();
      return;
    }
    // A worker has at most two partials: a first segment that begins inside its output
    // tile, and a last one that ends inside. The tile's owner is the only one whose
    // segment begins it.
    const int owner = cursor.worker_of(segment.tile.begin);
    const int finisher = cursor.worker_of(segment.tile.end - 1);
    const int turn = call.num_lines.value();
    count = (finisher - owner) / call.num_lines + 1;
    first = 2 * owner + 1;
    second = 2 * (owner + turn);
    step = 2 * turn;
    mine = 2 * cursor.worker() + (segment.ids.begin == segment.tile.begin ? 1 : 0);
    counter = owner;
  }
};

/// Merges all partials of a slice.
[[nodiscard]] __device__ inline Position merge_slice(const Call& call, const Partners& partners,
                                                     int slice) {
  const SlicePlace first(call, partners.first, slice);
  const SlicePlace second(call, partners.second, slice);
  const std::int64_t step = std::int64_t{partners.step} * call.num_slices * kSliceFloats;
  return merge_positions<8>(partners.count,
                            [&](int i) { return i == 0 ? first : second.after((i - 1) * step); });
}

/// Where the warps of a block leave the states of 8 rows for each other.
template <int kVHeadDim, int kWarps>
struct MergeMemory {
  static constexpr int kRowFloats = kVHeadDim + 4;  // rows begin in different banks
  static constexpr int kWarpFloats = 8 * kRowFloats;
  static constexpr int kBytes = kWarps * (8 * 8 + kWarpFloats * 4);

  int warp;        // this one
  float2* states;  // [kWarps][8]
  float* outs;     // [kWarps][8][kRowFloats]

  __device__ MergeMemory(std::byte* memory, int warp_index)
      : warp(warp_index),
        states(reinterpret_cast<float2*>(memory)),
        outs(reinterpret_cast<float*>(memory + kWarps * 64)) {}

  template <class Tile>
  __device__ void put(const Tile& tile, int row_tile, int num_rows) const {
    const int row = lane_id() % 4 * 2;
    float* to = outs + warp * kWarpFloats;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if (row + j >= num_rows) break;
      if (lane_id() < 4) {
        states[warp * 8 + row + j] = {tile.max[row_tile][j], tile.sum[row_tile][j]};
      }
#pragma unroll
      for (int d = 0; d < Tile::kDimTiles; ++d) {
        float* at = to + (row + j) * kRowFloats + d * 16 + lane_id() / 4;
        at[0] = tile.O[row_tile][d][j];
        at[8] = tile.O[row_tile][d][j + 2];
      }
    }
  }

  /// What one warp has for a position.
  struct WarpPlace {
    const float2* at_state;
    const float* at_out;
    [[nodiscard]] __device__ SoftmaxState state() const { return {at_state->x, at_state->y}; }
    [[nodiscard]] __device__ float4 out() const { return *reinterpret_cast<const float4*>(at_out); }
  };

  /// What all warps have for a position.
  [[nodiscard]] __device__ Position merged(int row, int dim) const {
    return merge_few_positions<kWarps>(kWarps, [&](int i) {
      return WarpPlace{states + i * 8 + row, outs + i * kWarpFloats + row * kRowFloats + dim};
    });
  }
};

/// The warps that have the same rows of a tile, and merge them.
template <int kWarpsOfTeam>
struct Team {
  static constexpr int kWarps = kWarpsOfTeam;
  std::byte* memory;  // MergeMemory
  int index;          // of the block's teams
  int warp;           // of the team's
  bool fresh = true;  // nobody has used the memory

  __device__ void sync() const { sync_warps(BlockBarrier::kTeam, kWarps, index); }
};

/// Merges the warps of a team, with all of them; each calls take(slice, rows, position) for the
/// slices that are its own. `part` are the team's rows of the output tile.
template <int kVHeadDim, class Tile, class Team, class Take>
__device__ void for_each_slice(const Call& call, const Segment& segment, const RowPart& part,
                               const Tile& tile, const Team& team, const Take& take) {
  using Place = PositionPlace<kVHeadDim>;
  constexpr int kWarps = Team::kWarps;
  const MergeMemory<kVHeadDim, kWarps> merge_memory(team.memory, team.warp);
  const int rows = rows_of(call, segment, part.tile_m).size();
#pragma unroll
  for (int t = 0; t < Tile::kRowGroups; ++t) {
    const int group = part.first / 8 + t;  // of 8 rows
    if (8 * group >= rows) break;
    if (t > 0 || !team.fresh) team.sync();  // all have read what lay there before
    merge_memory.put(tile, t, rows - 8 * group);
    team.sync();
    for (int i = team.warp; i < slices_of_rows<kVHeadDim>(group, rows); i += kWarps) {
      const int slice = group * Place::kSlices + i;
      const Place at(slice, rows);
      Position position;
      if (at.real) position = merge_memory.merged(at.row - 8 * group, at.dim);
      take(slice, rows, position);
    }
  }
}

/// Publishes a slice of a segment that is not its whole output tile; the last of the partners
/// to come merges and writes it.
template <class Element, int kVHeadDim>
__device__ void share_slice(const Call& call, const Segment& segment, const Partners& partners,
                            int tile_m, int slice, int rows, const Position& position) {
  SlicePlace(call, partners.mine, slice).store(position);
  if (!call.batch_invariant && call.kind == PartitionKind::kFixedSplit) return;
  const Arrival arrival(call.counters + std::int64_t{partners.counter} * call.num_slices + slice,
                        segment.ids.size());
  const PositionPlace<kVHeadDim> at(slice, rows);
  const OutputPlace place(call, segment, segment.row_block * tile_m + (at.real ? at.row : 0));
  if (!arrival.last(segment.tile.size())) return;
  const Position merged = merge_slice(call, partners, slice);
  if (at.real) write_position<Element>(call, place, at.dim, merged);
}

/// The end of a segment, with all warps of a team: merges them, and writes or shares what comes
/// of it.
template <class Element, int kVHeadDim, class Tile, class Team>
__device__ void finish_segment(const Call& call, const Segment& segment, const Partners& partners,
                               const RowPart& part, const Tile& tile, const Team& team) {
  for_each_slice<kVHeadDim>(
      call, segment, part, tile, team, [&](int slice, int rows, const Position& position) {
        if (!segment.whole()) {
          share_slice<Element, kVHeadDim>(call, segment, partners, part.tile_m, slice, rows,
                                          position);
          return;
        }
        const PositionPlace<kVHeadDim> at(slice, rows);
        const OutputPlace place(call, segment,
                                segment.row_block * part.tile_m + (at.real ? at.row : 0));
        if (at.real) write_position<Element>(call, place, at.dim, position);
      });
}

}  // namespace leanattn::cuda
