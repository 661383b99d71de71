// What the warps of a block share: the ring of keys and values, the notes of its segments,
// the barriers that guard both, and how the blocks of a cluster divide the stages.
#pragma once

#include "cuda/block_layout.h"
#include "cuda/cluster_inbox.cuh"
#include "cuda/lean_tile.cuh"

namespace leanattn::cuda {

/// What the scribe tells of a segment.
struct alignas(16) SegmentNote {
  Segment segment;
  Partners partners;
  bool end = false;  // nothing follows: the other fields mean nothing
};

/// Shared memory of a block, of at most kKilobytes.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, int kKilobytes>
class BlockMemory {
 public:
  using KMemory = TileMemory<kChunk, kHeadDim>;
  using VMemory = TileMemory<kChunk, kVHeadDim>;
  static constexpr int kStageWarps = 4;  // with a tile that share a stage, 16 keys each
  static constexpr int kKeys = kStageWarps * kChunk;
  static constexpr int kCopyWarps = 3;  // that bring keys and values
  static constexpr int kNotes = 2;
  static constexpr int kClaims = 2;
  /// Clusters are where there is room for what their blocks leave for each other.
  static constexpr bool kClusters = kKilobytes >= 227;
  static constexpr int kInboxFloats = ClusterInbox::floats(num_slices_of(kRowTiles, kVHeadDim));

 private:
  static constexpr int kKBytes = kStageWarps * KMemory::kBytes;
  static constexpr int kStageBytes = kKBytes + kStageWarps * VMemory::kBytes;
  static constexpr int kInboxesBytes = kClusters ? 2 * kInboxFloats * 4 : 0;
  static constexpr int kNoteBytes = static_cast<int>(sizeof(SegmentNote));
  // The line and the claims, which end at a multiple of 16.
  static constexpr int kLineBytes = static_cast<int>(sizeof(Line)) + kClaims * 8;
  static constexpr int kMostBarriers = 36;
  static constexpr int kQueriesBytes = TileMemory<8 * kRowTiles, kHeadDim>::kBytes;
  static constexpr int kFourWarpsMerge = MergeMemory<kVHeadDim, kStageWarps>::kBytes;
  static constexpr int kRoom = kKilobytes * 1024 - kNotes * kQueriesBytes - kInboxesBytes -
                               kNotes * kNoteBytes - kMostBarriers * Barrier::kBytes -
                               kLineBytes;  // for stages and merging

 public:
  /// Two groups of four warps, as far as registers and memory suffice. They take turns over the
  /// stages, or each takes half of the rows, so that O stays in registers.
  static constexpr int kGroups =
      kHeadDim + kVHeadDim <= 320 && kRoom - 2 * kFourWarpsMerge >= 2 * kStageBytes ? 2 : 1;
  static constexpr int kWarps = kGroups * kStageWarps;
  static constexpr int kOtherWarps = kCopyWarps + 1;                     // without a tile
  static constexpr int kThreads = (kWarps + kOtherWarps) * kLanes;       // whole warpgroups
  static constexpr int kParts = kGroups == 2 && kRowTiles == 4 ? 2 : 1;  // of the rows
  static constexpr int kTurns = kGroups / kParts;
  static constexpr int kTeamWarps = kWarps / kParts;  // that have the same rows
  static constexpr int kTileRowTiles = kRowTiles / kParts;
  using Queries = QueryTile<Element, kHeadDim, kTileRowTiles>;

 private:
  static constexpr int kQueryBytes = Queries::Memory::kBytes;  // of a part
  static constexpr int kMergeBytes = MergeMemory<kVHeadDim, kTeamWarps>::kBytes;
  static constexpr int kMostStages = (kRoom - kParts * kMergeBytes) / kStageBytes;

 public:
  static constexpr int kStages = kMostStages < 12 ? kMostStages : 12;
  /// Whether there is room for a ring; else no kernel has this memory.
  static constexpr bool kFits = kStages >= 2;
  static constexpr int kBytes =
      kKilobytes * 1024 - kRoom + kParts * kMergeBytes + kStages * kStageBytes;

  __device__ explicit BlockMemory(std::byte* memory)
      : memory_(memory), base_(shared_address(memory)) {
    asm volatile("" : "+r"(base_));  // what it takes to find it is not to be repeated everywhere
  }

  /// K and V of rows 16·warp … of a stage: addresses in shared memory, as all that is unsigned.
  [[nodiscard]] __device__ ChunkMemory chunk(int stage, int warp) const {
    const unsigned at = base_ + static_cast<unsigned>(stage * kStageBytes);
    return {at + warp * KMemory::kBytes, at + kKBytes + warp * VMemory::kBytes};
  }
  /// Q of a part of the rows.
  [[nodiscard]] __device__ unsigned queries(int note, int part) const {
    return base_ + kQueriesAt + (note * kParts + part) * kQueryBytes;
  }
  [[nodiscard]] __device__ static RowPart rows(int part) {
    return {part * 8 * kTileRowTiles, 8 * kRowTiles};
  }
  /// Of the warps with a tile, those that have the same rows as `warp`.
  [[nodiscard]] __device__ Team<kTeamWarps> team(int warp) const {
    const int index = warp / kTeamWarps;
    return {memory_ + kMergeAt + index * kMergeBytes, index, warp - index * kTeamWarps};
  }
  /// [kInboxFloats], of two: one is read while the next comes in.
  [[nodiscard]] __device__ float* inbox(int parity) const {
    return reinterpret_cast<float*>(memory_ + kInboxesAt) + parity * kInboxFloats;
  }
  [[nodiscard]] __device__ SegmentNote& note(int index) const {
    return reinterpret_cast<SegmentNote*>(memory_ + kNotesAt)[index];
  }
  [[nodiscard]] __device__ Line& line() const {
    return *reinterpret_cast<Line*>(memory_ + kLineAt);
  }
  /// A worker whose share the block takes.
  [[nodiscard]] __device__ int& claim(int index) const {
    return reinterpret_cast<int*>(memory_ + kClaimsAt)[index];
  }

  // Barriers. Of a stage: its keys have landed; all have taken them.
  [[nodiscard]] __device__ Barrier full(int stage) const { return barrier(stage); }
  [[nodiscard]] __device__ Barrier empty(int stage) const { return barrier(kStages + stage); }
  // Of a note: it is written, its queries with it; all have read it.
  [[nodiscard]] __device__ Barrier noted(int note) const { return barrier(2 * kStages + note); }
  [[nodiscard]] __device__ Barrier read(int note) const {
    return barrier(2 * kStages + kNotes + note);
  }
  /// An inbox holds what it is to hold.
  [[nodiscard]] __device__ Barrier arrived(int parity) const {
    return barrier(2 * (kStages + kNotes) + parity);
  }
  /// All blocks of the cluster have begun a segment.
  [[nodiscard]] __device__ Barrier begun() const { return barrier(kClaimBarriers - 1); }
  // Of a claim: it is made; all warps without a tile have heard of it.
  [[nodiscard]] __device__ Barrier claimed(int claim) const {
    return barrier(kClaimBarriers + claim);
  }
  [[nodiscard]] __device__ Barrier heard(int claim) const {
    return barrier(kClaimBarriers + kClaims + claim);
  }

  /// With all warps that have a tile: each has a part of them. (Addresses that differ in a warp
  /// would be taken one after the other.)
  __device__ void init_barriers(int warp, int cluster_size, bool claims) const {
    if (lane_id() != 0) return;
    const int count = claims ? kBarriers : kClaimBarriers;
#pragma unroll 1
    for (int i = warp; i < count; i += kWarps) {
      const int arrivals = i < kStages                    ? kCopyWarps * kLanes
                           : i < 2 * kStages              ? kStageWarps * kParts * Barrier::kOfWarp
                           : i < 2 * kStages + kNotes     ? Barrier::kOfWarp
                           : i < 2 * (kStages + kNotes)   ? kWarps * Barrier::kOfWarp
                           : i < kClaimBarriers - 1       ? 1
                           : i < kClaimBarriers           ? cluster_size
                           : i < kClaimBarriers + kClaims ? Barrier::kOfWarp
                                                          : kOtherWarps * Barrier::kOfWarp;
      barrier(i).init(arrivals);
    }
    fence_barrier_init();
  }

 private:
  static constexpr int kClaimBarriers = 2 * kStages + 2 * kNotes + 3;  // come before these
  static constexpr int kBarriers = kClaimBarriers + 2 * kClaims;
  static constexpr int kQueriesAt = kStages * kStageBytes;
  static constexpr int kMergeAt = kQueriesAt + kNotes * kParts * kQueryBytes;
  static constexpr int kInboxesAt = kMergeAt + kParts * kMergeBytes;
  static constexpr int kNotesAt = kInboxesAt + kInboxesBytes;
  static constexpr int kBarriersAt = kNotesAt + kNotes * kNoteBytes;
  static_assert(kBarriers <= kMostBarriers);
  static constexpr int kLineAt = kBarriersAt + kMostBarriers * Barrier::kBytes;
  static constexpr int kClaimsAt = kLineAt + static_cast<int>(sizeof(Line));
  static_assert(kLineAt + kLineBytes == kBytes);

  [[nodiscard]] __device__ Barrier barrier(int index) const {
    return Barrier(base_ + kBarriersAt + index * Barrier::kBytes);
  }

  std::byte* memory_;
  unsigned base_;  // memory_ in shared memory
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
