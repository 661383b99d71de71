// The kernel. Of a block's warps, eight (or four) have the tiles; three bring keys and values
// into a ring of stages; one, the scribe, brings the queries and notes what each segment is.
// The warps with the tiles see nothing of schedule, pages or addresses: their code is what
// 16 keys need (docs/kernels.md).
//
// For each segment of my work range { for each 16 keys { S = K·Qᵀ, update the states,
// O += Vᵀ·P }; write the output, or publish a partial and, if last, merge }: one launch, in
// which nobody waits for another worker (LeanAttention, arXiv 2405.10480).
#pragma once

#include "cuda/block_memory.cuh"
#include "cuda/combine_kernel.cuh"
#include "cuda/kernel_table.h"
#include "cuda/key_rows.cuh"
#include "cuda/wide_kernel.cuh"

namespace leanattn::cuda {

/// One of the warps that keep the ring full: it brings every kCopyWarps-th chunk, from the
/// `mine`-th on.
template <class Copier, class Memory>
__device__ void bring_keys(const Call& call, const Memory& memory, Cursor& cursor, Copier& copier,
                           const ClusterShare& share, int mine) {
  RingPlace<Memory::kStages> stage;
  const int step = share.size * Memory::kKeys;
  int chunk = mine;  // the next of this warp's, counted from the first of the stage
#pragma unroll 1
  while (!cursor.done()) {
    const Segment segment = cursor.next();
    copier.begin(segment);
    const int end = segment.keys.end;
    int key = segment.keys.begin / kChunk * kChunk + share.rank * Memory::kKeys;
    // The first key of this warp's n-th chunk of the segment.
    const auto key_of = [&, first = key, skipped = chunk](int n) {
      const int nth = skipped + n * Memory::kCopyWarps;
      return first + nth / Memory::kStageWarps * step + nth % Memory::kStageWarps * kChunk;
    };
    int n = 0;
    copier.look_up(key_of, 0);
#pragma unroll 1
    for (; key < end; key += step) {
      memory.empty(stage.index).wait(stage.parity ^ 1);
      if (copier.is_whole(key, Memory::kKeys) && copier.contiguous()) {
#pragma unroll 1
        for (; chunk < Memory::kStageWarps; chunk += Memory::kCopyWarps) {
          copier.template copy_whole<false>(memory.chunk(stage.index, chunk), key + chunk * kChunk,
                                            0);
        }
      } else {
#pragma unroll 1
        for (; chunk < Memory::kStageWarps; chunk += Memory::kCopyWarps) {
          const int first = key + chunk * kChunk;
          const ChunkMemory to = memory.chunk(stage.index, chunk);
          if (!copier.contiguous() && copier.is_whole(first, kChunk)) {
            copier.template copy_whole<true>(to, first, copier.page(n));
          } else if (copier.is_gathered(first)) {
            copier.copy_gathered(to, first, copier.page(n));
          } else if (first < end) {
            copier.copy(to, first, copier.page(n));
          }
          copier.look_up(key_of, ++n);
        }
      }
      chunk -= Memory::kStageWarps;
      memory.full(stage.index).arrive_after_copies(call.copies_aligned);
      stage.advance();
    }
  }
  let_next_call_start();
}

/// The scribe: brings the queries of each segment and notes what it is.
template <class Memory>
__device__ void note_segments(const Call& call, const Memory& memory, Cursor& cursor) {
  RingPlace<Memory::kNotes> place;
  for (;;) {
    SegmentNote& note = memory.note(place.index);
    memory.read(place.index).wait(place.parity ^ 1);
    if (cursor.done()) {
      note.end = true;
    } else {
      const Segment segment = cursor.next();
      typename Memory::Queries::Pieces pieces[Memory::kParts];
#pragma unroll
      for (int part = 0; part < Memory::kParts; ++part) {
        pieces[part] = Memory::Queries::load(call, segment, Memory::rows(part));
      }
      note.segment = segment;  // all lanes the same
      if (!segment.whole()) note.partners = Partners(call, cursor, segment);
      note.end = false;
#pragma unroll
      for (int part = 0; part < Memory::kParts; ++part) {
        Memory::Queries::store(pieces[part], memory.queries(place.index, part));
      }
    }
    memory.noted(place.index).arrive_as_warp();
    if (note.end) break;
    place.advance();
  }
}

/// The end of a segment that a cluster's blocks shared: each sends its slices to the blocks
/// that merge them. An inbox is used every other segment: once all blocks have begun this
/// one, they have emptied it.
template <class Element, int kVHeadDim, int kRowTiles, class Memory, class Tile>
__device__ void finish_in_cluster(const Call& call, const SegmentNote& note, const Memory& memory,
                                  const Tile& tile, int warp, const ClusterShare& share,
                                  unsigned round) {
  using Place = PositionPlace<kVHeadDim>;
  const int parity = static_cast<int>(round & 1);
  const ClusterInbox inbox{memory.inbox(parity), memory.arrived(parity), share.rank, share.size};
  const int rows =
      rows_of_block(call, note.segment.block.q_len, note.segment.row_block, 8 * kRowTiles).size();
  // Slices of a group of 8 rows that lack rows are left out; they are its last.
  const auto exists = [&](int slice) {
    const int group = slice / Place::kSlices;
    return slice - group * Place::kSlices < slices_of_rows<kVHeadDim>(group, rows);
  };
  constexpr int kSlices = num_slices_of(kRowTiles, kVHeadDim);
  if (round >= 2) memory.begun().wait(round & 1);
  if (warp == 0) {
    const int mine = lane_id() * share.size + share.rank;
    const int count = __popc(__ballot_sync(kAllLanes, mine < kSlices && exists(mine)));
    if (lane_id() == 0) inbox.expect(count);
  }
  const auto team = memory.team(warp);
  for_each_slice<kVHeadDim>(
      call, note.segment, Memory::rows(team.index), tile, team,
      [&](int slice, int, const Position& position) { inbox.send(slice, position); });

  bool waited = false;
#pragma unroll 1
  for (int nth = warp; nth * share.size + share.rank < kSlices; nth += Memory::kWarps) {
    const int slice = nth * share.size + share.rank;
    if (!exists(slice)) continue;
    const Place at(slice, rows);
    const OutputPlace place(call, note.segment,
                            note.segment.row_block * 8 * kRowTiles + (at.real ? at.row : 0));
    if (!waited) inbox.arrived.wait(round / 2 & 1);
    waited = true;
    const Position position = inbox.merged(nth);
    if (!note.segment.whole()) {
      share_slice<Element, kVHeadDim>(call, note.segment, note.partners, 8 * kRowTiles, slice, rows,
                                      position);
    } else if (at.real) {
      write_position<Element>(call, place, at.dim, position);
    }
  }
}

/// A warp with a tile.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, class Memory>
__device__ void consume(const Call& call, const Memory& memory, int warp,
                        const ClusterShare& share) {
  const float scale_log2 = call.scale * kLog2E;
  const auto team = memory.team(warp);
  const RowPart part = Memory::rows(team.index);
  const int turn = team.warp / Memory::kStageWarps;
  const int first_row = warp % Memory::kStageWarps * kChunk;  // of a stage
  typename Memory::Queries queries;
  WarpTile<Element, kHeadDim, kVHeadDim, Memory::kTileRowTiles> tile;
  RingPlace<Memory::kStages> first;  // the segment's first stage
  RingPlace<Memory::kNotes> note;
#pragma unroll 1
  for (unsigned round = 0;; ++round, note.advance()) {
    memory.noted(note.index).wait(note.parity);
    const SegmentNote& noted = memory.note(note.index);
    if (noted.end) break;
    // No block ends before its peers have begun the last segment.
    if (share.size > 1 && round >= 2 && warp == 0 && lane_id() < share.size) {
      memory.begun().arrive_at(lane_id());
    }
    const Range32 keys = noted.segment.keys;
    const int first_key = keys.begin / kChunk * kChunk;
    const int num_stages = share.stages_of(ceil_div_int(keys.end - first_key, Memory::kKeys));
    queries.attach(memory.queries(note.index, team.index));
    tile.clear();
    // Which warp takes which keys depends on the segment alone, and so do the bits.
    RingPlace<Memory::kStages> stage = first;
    stage.advance(turn);
#pragma unroll 1
    for (int i = turn; i < num_stages; i += Memory::kTurns) {
      const int key = first_key + (share.rank + i * share.size) * Memory::kKeys + first_row;
      memory.full(stage.index).wait(stage.parity);
      if (key < keys.end) {
        tile.take(call, noted.segment, part, queries,
                  memory.chunk(stage.index, warp % Memory::kStageWarps), key, scale_log2);
      }
      memory.empty(stage.index).arrive_as_warp();
      stage.advance(Memory::kTurns);
    }
    first.advance_far(num_stages);
    tile.finish();
    wait_for_call_ahead();
    if (share.size == 1) {
      finish_segment<Element, kVHeadDim>(call, noted.segment, noted.partners, part, tile, team);
    } else {
      finish_in_cluster<Element, kVHeadDim, kRowTiles>(call, noted, memory, tile, warp, share,
                                                       round);
    }
    memory.read(note.index).arrive_as_warp();
  }
}

/// The memory of a block on what is being compiled for.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
using BlockMemoryHere =
    BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles, kBlockKilobytes[kBlockLayout]>;

/// The kernel's block. `bytes` is its dynamic shared memory.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
__device__ __forceinline__ void run_block(const Call& call, std::byte* bytes) {
  using Memory = BlockMemoryHere<Element, kHeadDim, kVHeadDim, kRowTiles>;
  constexpr int kTileM = 8 * kRowTiles;
  // Of a lane: what 3 warpgroups have at 168 each, dealt by what O takes.
  constexpr int kOElements = Memory::kTileRowTiles * kVHeadDim;
  constexpr int kTileRegisters = kOElements <= 128 ? 184 : kOElements <= 256 ? 192 : 200;
  constexpr int kOtherRegisters = 3 * 168 - 2 * kTileRegisters;
  const Memory memory(bytes);
  const int warp = warp_id();
  ClusterShare share;
  share.size = call.cluster.value();
  const int place = static_cast<int>(blockIdx.x) / call.cluster;
  share.rank = static_cast<int>(blockIdx.x) - place * share.size;
  if (!call.reads_early) wait_for_call_ahead();
  if (call.kind == PartitionKind::kStreamK && call.num_row_blocks > kLanes) {
    lay_out_line(call, kTileM, memory.line());
  }
  // Loads the lengths, for the warps without a tile; the barriers are set up meanwhile.
  Cursor cursor(call, kTileM, memory.line(), place);
  if (warp < Memory::kWarps) memory.init_barriers(warp, share.size);
  __syncthreads();
  if (share.size > 1) cluster_arrive();

  // Registers go by warpgroups: those with the tiles get what the others can spare.
  if (warp < Memory::kWarps) {
    if constexpr (Memory::kGroups == 2) more_registers<kTileRegisters>();
    if (call.timeline != nullptr && threadIdx.x == 0) {
      call.timeline[2 * blockIdx.x] = nanoseconds();
    }
    if (share.size > 1) cluster_wait();  // all have begun, and their barriers are ready
    consume<Element, kHeadDim, kVHeadDim, kRowTiles>(call, memory, warp, share);
    if (call.timeline != nullptr && threadIdx.x == 0) {
      call.timeline[2 * blockIdx.x + 1] = nanoseconds();
    }
    return;
  }
  if constexpr (Memory::kGroups == 2) fewer_registers<kOtherRegisters>();
  const int role = warp - Memory::kWarps;
  if (role < Memory::kCopyWarps) {
    KeyCopier<kHeadDim, kVHeadDim, Reuse::kOnce> copier(call);
    cursor.start();
    bring_keys(call, memory, cursor, copier, share, role);
  } else {
    cursor.start();
    const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
    wait_for_call_ahead();
    note_segments(call, memory, cursor);
    if (maybe_empty_blocks) write_empty_blocks<Element, kVHeadDim>(call, kTileM);
  }
  __syncwarp();
  if (share.size > 1) cluster_wait();
}

/// Empty where a block has too little shared memory for it: never launched there.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
__global__ void __launch_bounds__(
    BlockMemoryHere<Element, kHeadDim, kVHeadDim, kRowTiles>::kThreads, 1)
    lean_tile_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(1024) std::byte bytes[];
  if constexpr (BlockMemoryHere<Element, kHeadDim, kVHeadDim, kRowTiles>::kFits) {
    run_block<Element, kHeadDim, kVHeadDim, kRowTiles>(call, bytes);
  }
}

template <class Element>
inline constexpr ElementType kElementType = ElementType::kFloat16;
template <>
inline constexpr ElementType kElementType<cutlass::bfloat16_t> = ElementType::kBFloat16;

template <class Memory>
[[nodiscard]] BlockLayout layout_of() {
  if (!Memory::kFits) return {};
  return {Memory::kThreads, Memory::kBytes, Memory::kClusters};
}

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
[[nodiscard]] CompiledKernel compiled_kernel() {
  CompiledKernel row;
  row.type = kElementType<Element>;
  row.head_dim = kHeadDim;
  row.v_head_dim = kVHeadDim;
  row.row_tiles = kRowTiles;
  row.kernel =
      reinterpret_cast<const void*>(&lean_tile_kernel<Element, kHeadDim, kVHeadDim, kRowTiles>);
  row.layouts = {
      layout_of<BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles, kBlockKilobytes[0]>>(),
      layout_of<BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles, kBlockKilobytes[1]>>(),
      layout_of<BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles, kBlockKilobytes[2]>>()};
  row.combine = reinterpret_cast<const void*>(&combine_kernel<Element, kVHeadDim, kRowTiles>);
  return row;
}

/// The kernels for many rows. O of 32 rows takes kVHeadDim registers of a lane: more than
/// 128 do not fit, and with a head_dim above 128 neither do two blocks into an SM.
template <class Element, int kHeadDim, int kVHeadDim, Scores kScores>
[[nodiscard]] CompiledKernel compiled_wide_kernel() {
  constexpr bool kRuled = kScores == Scores::kRuled;
  constexpr int kGroups = kHeadDim <= 128 && kVHeadDim <= 128 && !kRuled ? 2 : 1;
  constexpr int kWarps = 8 / kGroups;
  using Block = WideBlock<Element, kHeadDim, kVHeadDim, kGroups, kWarps, kRuled>;
  CompiledKernel row;
  row.type = kElementType<Element>;
  row.head_dim = kHeadDim;
  row.v_head_dim = kVHeadDim;
  row.row_tiles = Block::kTileM / 8;
  row.scores = kScores;
  row.kernel = reinterpret_cast<const void*>(
      &wide_kernel<Element, kHeadDim, kVHeadDim, kGroups, kWarps, kRuled>);
  for (std::size_t i = 0; i < row.layouts.size(); ++i) {
    if (Block::kBytes > kBlockKilobytes[i] * 1024) continue;
    row.layouts[i] = {Block::kThreads, Block::kBytes, false};
  }
  row.combine =
      reinterpret_cast<const void*>(&combine_kernel<Element, kVHeadDim, Block::kTileM / 8>);
  return row;
}

template <class Element, int kHeadDim, int kVHeadDim>
std::span<const CompiledKernel> LeanTileKernels<Element, kHeadDim, kVHeadDim>::rows() {
  // O of 8 rows takes kVHeadDim / 4 registers of a lane: at most 128 of its 255.
  if constexpr (kVHeadDim <= 128) {
    static const CompiledKernel table[] = {
        compiled_kernel<Element, kHeadDim, kVHeadDim, 1>(),
        compiled_kernel<Element, kHeadDim, kVHeadDim, 2>(),
        compiled_kernel<Element, kHeadDim, kVHeadDim, 4>(),
        compiled_wide_kernel<Element, kHeadDim, kVHeadDim, Scores::kPlain>(),
        compiled_wide_kernel<Element, kHeadDim, kVHeadDim, Scores::kRuled>()};
    return table;
  } else {
    static const CompiledKernel table[] = {
        compiled_kernel<Element, kHeadDim, kVHeadDim, 1>(),
        compiled_kernel<Element, kHeadDim, kVHeadDim, 2>(),
        compiled_wide_kernel<Element, kHeadDim, kVHeadDim, Scores::kPlain>(),
        compiled_wide_kernel<Element, kHeadDim, kVHeadDim, Scores::kRuled>()};
    return table;
  }
}

}  // namespace leanattn::cuda
