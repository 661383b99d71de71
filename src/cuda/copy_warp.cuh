// The warps that keep the ring full: which chunks of a segment are a warp's, and how it comes by
// them in a contiguous cache and in pages.
#pragma once

#include <bit>

#include "cuda/block_memory.cuh"
#include "cuda/page_places.cuh"

namespace leanattn::cuda {

/// Where the chunks of a segment lie that one copy warp brings: of the segment's chunks for this
/// block, counted from its first stage's first, every kCopyWarps-th from `skipped` on.
template <class Memory>
struct ChunkKeys {
  int first;  // key of the first stage
  int step;   // keys from a stage of this block's to its next
  int skipped;

  /// The first key of the n-th.
  [[nodiscard]] __device__ int operator()(int n) const {
    const auto nth = static_cast<unsigned>(skipped + n * Memory::kCopyWarps);
    return first + static_cast<int>(nth / Memory::kStageWarps) * step +
           static_cast<int>(nth % Memory::kStageWarps) * kChunk;
  }
};

/// One of the warps that keep the ring full, from a cache that is paged or contiguous.
template <bool kPaged, class Copier, class Memory>
class CopyWarp {
 public:
  /// The `mine`-th of them.
  __device__ CopyWarp(const Call& call, const Memory& memory, const ClusterShare& share, int mine)
      : call_(call),
        memory_(memory),
        rank_keys_(share.rank * Memory::kKeys),
        step_(share.size * Memory::kKeys),
        chunk_(mine),
        copier_(call) {
    asm volatile("" : "+r"(step_));  // multiplied once, not for every stage
    if constexpr (!kPaged) {
      to_next_ = copier_.contiguous_offsets(Memory::kCopyWarps * kChunk).same_in_all();
      over_peers_ = copier_.contiguous_offsets(step_ - Memory::kKeys).same_in_all();
    }
  }

  __device__ void bring(const Segment& segment) {
    if constexpr (kPaged) {
      bring_paged(segment);
    } else {
      bring_contiguous(segment);
    }
  }

 private:
  /// Twice what the ring holds of short keys; of long ones, which are fewer for as many bytes,
  /// there are no registers for more.
  static constexpr int kAhead =
      static_cast<int>(std::bit_floor(4096u / (Copier::kHeadDim + Copier::kVHeadDim)));
  using Places = PagePlaces<kAhead>;

  __device__ void bring_contiguous(const Segment& segment) {
    copier_.begin(segment, cache_row(call_, segment));
    const int first_key = first_key_of(segment) + chunk_ * kChunk;
    ChunkPointers next = copier_.pointers(copier_.contiguous_offsets(first_key));
    for_each_stage(segment, [&](int key) {
      if (copier_.is_whole(key, Memory::kKeys)) {
        for_each_chunk(key, [&](const ChunkMemory& to, int) {
          copier_.copy_apart(to, next);
          next.advance(to_next_);
        });
      } else {
        for_each_chunk(key, [&](const ChunkMemory& to, int first) {
          next.advance(to_next_);
          if (first >= segment.keys.end) return;
          copier_.copy(to, first, copier_.contiguous_offsets(copier_.lane_key(first)));
        });
      }
      next.advance(over_peers_);
    });
  }

  __device__ void bring_paged(const Segment& segment) {
    copier_.begin(segment, 0);
    Places places(call_, segment);
    const ChunkKeys<Memory> key_of{first_key_of(segment), step_, chunk_};
    int n = 0;
    places.look_up(key_of, 0);
    for_each_stage(segment, [&](int key) {
      const bool whole = call_.pages_in_pieces && copier_.is_whole(key, Memory::kKeys);
      for_each_chunk(key, [&](const ChunkMemory& to, int first_key) {
        if (whole && places.one_page()) {
          copier_.copy_apart(to, copier_.pointers(places.pieces(n).offsets()));
        } else if (whole) {
          copier_.copy_gathered(to, [&](int row) { return places.pieces(n, row); });
        } else if (first_key < segment.keys.end) {
          copier_.copy(to, first_key,
                       copier_.paged_offsets(copier_.lane_key(first_key), places.page(n)));
        }
        places.look_up(key_of, ++n);
      });
    });
  }

  [[nodiscard]] __device__ int first_key_of(const Segment& segment) const {
    return segment.keys.begin / kChunk * kChunk + rank_keys_;
  }

  /// Calls bring_stage(first key) for each stage of the segment, once there is room for it.
  template <class BringStage>
  __device__ void for_each_stage(const Segment& segment, const BringStage& bring_stage) {
#pragma unroll 1
    for (int key = first_key_of(segment); key < segment.keys.end; key += step_) {
      memory_.empty(stage_.index).wait(stage_.parity ^ 1);
      bring_stage(key);
      chunk_ -= Memory::kStageWarps;
      memory_.full(stage_.index).arrive_after_copies(call_.copies_aligned);
      stage_.advance();
    }
  }
  /// Calls bring_chunk(to, first key) for this warp's chunks of the stage whose keys begin at
  /// `key`.
  template <class BringChunk>
  __device__ void for_each_chunk(int key, const BringChunk& bring_chunk) {
#pragma unroll 1
    for (; chunk_ < Memory::kStageWarps; chunk_ += Memory::kCopyWarps) {
      bring_chunk(memory_.chunk(stage_.index, chunk_), key + chunk_ * kChunk);
    }
  }

  const Call& call_;
  const Memory& memory_;
  int rank_keys_;  // keys of the blocks before this one in a cluster's stages
  int step_;       // keys from a stage of this block's to its next
  int chunk_;      // the next of this warp's, counted from the first of the stage
  RingPlace<Memory::kStages> stage_;
  Copier copier_;
  KeyOffsets to_next_;     // contiguous: from a chunk of this warp's to its next
  KeyOffsets over_peers_;  // and over what other blocks of a cluster bring before its next stage
};

}  // namespace leanattn::cuda
