// What the warps of a block share: the ring of keys and values, the notes of its segments,
// the barriers that guard both, and how the blocks of a cluster divide the stages.
#pragma once

#include "cuda/barrier.cuh"
#include "cuda/lean_tile.cuh"
#include "cuda/merge.cuh"

namespace leanattn::cuda {

/// What the scribe tells of a segment.
struct alignas(16) SegmentNote {
  Segment segment;
  Partners partners;
  bool end = false;  // nothing follows: the other fields mean nothing
};

/// Shared memory of a block.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
struct BlockMemory {
  using QMemory = typename QueryTile<Element, kHeadDim, kRowTiles>::Memory;
  using KMemory = TileMemory<kChunk, kHeadDim>;
  using VMemory = TileMemory<kChunk, kVHeadDim>;
  /// Warps with a tile. Four share a stage, 16 keys each; groups of four take turns.
  static constexpr int kStageWarps = 4;
  static constexpr int kGroups = kHeadDim + kVHeadDim <= 320 ? 2 : 1;
  static constexpr int kWarps = kGroups * kStageWarps;
  static constexpr int kCopyWarps = 3;                                 // that bring keys and values
  static constexpr int kThreads = (kWarps + kCopyWarps + 1) * kLanes;  // whole warpgroups
  static constexpr int kKeys = kStageWarps * kChunk;
  static constexpr int kKBytes = kStageWarps * KMemory::kBytes;
  static constexpr int kStageBytes = kKBytes + kStageWarps * VMemory::kBytes;
  static constexpr int kNotes = 2;
  /// What the blocks of a cluster leave for this one; two, as one is read while the next
  /// comes in.
  static constexpr int kInboxFloats =
      ClusterInbox::floats(num_slices_of(kRowTiles, kVHeadDim));

  static constexpr int kRestBytes =
      MergeMemory<kVHeadDim>::bytes(kWarps) + 2 * kInboxFloats * 4 +
      kNotes * (QMemory::kBytes + static_cast<int>(sizeof(SegmentNote))) +
      static_cast<int>(sizeof(Line)) + 32 * 8;
  static constexpr int kMostStages = (227 * 1024 - kRestBytes) / kStageBytes;
  static constexpr int kStages = kMostStages < 12 ? kMostStages : 12;
  static_assert(kStages >= 2);
  static constexpr int kBarriers = 2 * kStages + 2 * kNotes + 3;
  static constexpr int kBytes = kStages * kStageBytes + kRestBytes;

  std::byte* ring;     // [kStages][K of kKeys, V of kKeys]
  std::byte* queries;  // [kNotes]
  std::byte* merge;
  float* inbox;        // [2][kInboxFloats]
  SegmentNote* notes;  // [kNotes]
  Barrier* full;       // [kStages]; the barriers lie one after the other
  Barrier* empty;      // [kStages]
  Barrier* noted;      // [kNotes]
  Barrier* read;       // [kNotes]
  Barrier* arrived;    // [2] what an inbox is to hold
  Barrier* begun;      // the cluster's blocks have all begun a segment
  Line* line;

  __device__ explicit BlockMemory(std::byte* memory)
      : ring(memory),
        queries(ring + kStages * kStageBytes),
        merge(queries + kNotes * QMemory::kBytes),
        inbox(reinterpret_cast<float*>(merge + MergeMemory<kVHeadDim>::bytes(kWarps))),
        notes(reinterpret_cast<SegmentNote*>(inbox + 2 * kInboxFloats)),
        full(reinterpret_cast<Barrier*>(notes + kNotes)),
        empty(full + kStages),
        noted(empty + kStages),
        read(noted + kNotes),
        arrived(read + kNotes),
        begun(arrived + 2),
        line(reinterpret_cast<Line*>(begun + 1)) {
    static_assert(kBarriers <= kLanes);
  }

  /// With a whole warp: each lane has one of them.
  __device__ void init_barriers(int cluster_size) const {
    const int mine = lane_id();
    const int arrivals = mine < kStages                  ? kLanes  // of the warp that filled it
                         : mine < 2 * kStages            ? kStageWarps
                         : mine < 2 * kStages + kNotes   ? 1
                         : mine < 2 * (kStages + kNotes) ? kWarps
                         : mine < kBarriers - 1          ? 1
                                                         : cluster_size;
    if (mine < kBarriers) full[mine].init(arrivals);
    fence_barrier_init();
  }

  /// K and V of a stage.
  [[nodiscard]] __device__ ChunkMemory stage(int index) const {
    std::byte* at = ring + index * kStageBytes;
    return {at, at + kKBytes};
  }
  /// Rows 16·warp … of a stage.
  [[nodiscard]] __device__ ChunkMemory chunk(int index, int warp) const {
    const ChunkMemory all = stage(index);
    return {all.k + warp * KMemory::kBytes, all.v + warp * VMemory::kBytes};
  }
};

/// The blocks of a cluster share a worker's segments: block `rank` takes every size-th stage.
struct ClusterShare {
  int rank = 0;
  int size = 1;

  /// Stages of a segment's `num_stages` that are this block's.
  [[nodiscard]] __device__ int stages_of(int num_stages) const {
    return num_stages <= rank ? 0 : size == 1 ? num_stages : (num_stages - rank - 1) / size + 1;
  }
};

}  // namespace leanattn::cuda
