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
#include "cuda/claims.cuh"
#include "cuda/combine_kernel.cuh"
#include "cuda/copy_warp.cuh"
#include "cuda/kernel_table.h"
#include "cuda/wide_kernel.cuh"

namespace leanattn::cuda {

/// The scribe: brings the queries of each segment and notes what it is.
template <class Memory>
__device__ void note_segments(const Call& call, const Memory& memory, Cursor& cursor) {
  RingPlace<Memory::kNotes> place;
  Claims<Memory> claims(call, memory);
  Claimer<Memory> claimer(call, memory);
  const auto worker_after = [&](int worker) {
    claimer.claim_ahead(worker, cursor.num_workers());
    return claims.worker_after(worker);
  };
  for (;;) {
    SegmentNote& note = memory.note(place.index);
    memory.read(place.index).wait(place.parity ^ 1);
    if (cursor.done(worker_after)) {
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
    claimer.claim_ahead(cursor.worker(), cursor.num_workers());
  }
}

/// The end of a segment that a cluster's blocks shared: each sends its slices to the blocks
/// that merge them. An inbox is used every other segment: once all blocks have begun this
/// one, they have emptied it. `phases` has a bit of each inbox: that of its barrier's phase.
template <class Element, int kVHeadDim, int kRowTiles, class Memory, class Tile>
__device__ void finish_in_cluster(const Call& call, const SegmentNote& note, const Memory& memory,
                                  const Tile& tile, int warp, const Team<Memory::kTeamWarps>& team,
                                  const ClusterShare& share, unsigned round, unsigned& phases) {
  using Place = PositionPlace<kVHeadDim>;
  const int parity = static_cast<int>(round & 1);
  const unsigned phase = phases >> parity & 1;
  const ClusterInbox inbox{memory.inbox(parity), memory.arrived(parity), share.rank, call.cluster};
  const int rows = rows_of(call, note.segment, 8 * kRowTiles).size();
  // Slices of a group of 8 rows that lack rows are left out; they are its last.
  const auto exists = [&](int slice) {
    const int group = slice / Place::kSlices;
    return slice - group * Place::kSlices < slices_of_rows<kVHeadDim>(group, rows);
  };
  constexpr int kSlices = num_slices_of(kRowTiles, kVHeadDim);
  if (round >= 2) memory.begun().wait(round & 1);
  const int mine = lane_id() * share.size + share.rank;
  const int count = __popc(__ballot_sync(kAllLanes, mine < kSlices && exists(mine)));
  if (count > 0) phases ^= 1u << parity;  // of what is sent nothing, no phase ends
  if (count > 0 && warp == 0 && lane_id() == 0) inbox.expect(count);
  for_each_slice<kVHeadDim>(
      call, note.segment, Memory::rows(team.index), tile, team,
      [&](int slice, int, const Position& position) { inbox.send(slice, position); });

#pragma unroll 1
  for (int nth = warp; nth * share.size + share.rank < kSlices; nth += Memory::kWarps) {
    const int slice = nth * share.size + share.rank;
    if (!exists(slice)) continue;
    const Place at(slice, rows);
    const OutputPlace place(call, note.segment,
                            note.segment.row_block * 8 * kRowTiles + (at.real ? at.row : 0));
    inbox.arrived.wait(phase);
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
  auto team = memory.team(warp);
  const RowPart part = Memory::rows(team.index);
  const int turn = team.warp / Memory::kStageWarps;
  const int first_row = warp % Memory::kStageWarps * kChunk;  // of a stage
  typename Memory::Queries queries;
  WarpTile<Element, kHeadDim, kVHeadDim, Memory::kTileRowTiles> tile;
  RingPlace<Memory::kStages> first;  // the segment's first stage
  RingPlace<Memory::kNotes> note;
  unsigned inbox_phases = 0;
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
      finish_in_cluster<Element, kVHeadDim, kRowTiles>(call, noted, memory, tile, warp, team, share,
                                                       round, inbox_phases);
    }
    team.fresh = false;
    memory.read(note.index).arrive_as_warp();
  }
}

/// The memory of a block on what is being compiled for.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
using BlockMemoryHere =
    BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles, kBlockKilobytes[kBlockLayout]>;

/// The kernel's block. `bytes` is its dynamic shared memory.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, bool kPaged>
__device__ __forceinline__ void run_block(const Call& call, std::byte* bytes) {
  using Memory = BlockMemoryHere<Element, kHeadDim, kVHeadDim, kRowTiles>;
  constexpr int kTileM = 8 * kRowTiles;
  // Of a lane: what 3 warpgroups have at 168 each, dealt by what O takes.
  constexpr int kOElements = Memory::kTileRowTiles * kVHeadDim;
  constexpr int kTileRegisters = kOElements <= 128 ? 184 : kOElements <= 256 ? 192 : 200;
  constexpr int kOtherRegisters = 3 * 168 - 2 * kTileRegisters;
  if (!call.reads_early) wait_for_call_ahead();
  LineWindow window;
  window.load_early(call);
  const Memory memory(bytes);
  const int warp = warp_id();
  ClusterShare share;
  share.size = call.cluster.value();
  const int place = static_cast<int>(blockIdx.x) / call.cluster;
  share.rank = static_cast<int>(blockIdx.x) - place * share.size;
  if (is_long_line(call)) lay_out_line(call, kTileM, memory.line());
  // Loads the lengths, for the warps without a tile; the barriers are set up meanwhile.
  Cursor cursor(call, kTileM, memory.line(), window, place);
  // The warps with a tile set up the barriers, and one tells the others, who ask once they have
  // set up their copies.
  if (warp < Memory::kWarps) {
    memory.init_barriers(warp, share.size, call.claims != nullptr);
    sync_warps(BlockBarrier::kTiles, Memory::kWarps);
    if (warp == 0) arrive_with_warp(BlockBarrier::kSetUp, Memory::kOtherWarps + 1);
  }
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
  const bool copies = role < Memory::kCopyWarps;
  if (copies && call.fills_device) let_next_call_start();
  using Copier = KeyCopier<kHeadDim, kVHeadDim, Reuse::kOnce>;
  CopyWarp<kPaged, Copier, Memory> copy_warp(call, memory, share, role);
  cursor.start();
  // In one place for all: to compute-sanitizer's synccheck warps that wait for a barrier in two
  // places of the code have diverged.
  sync_warps(BlockBarrier::kSetUp, Memory::kOtherWarps + 1);
  if (copies) [[likely]] {
    Claims<Memory> claims(call, memory);
#pragma unroll 1
    while (!cursor.done([&](int worker) { return claims.worker_after(worker); })) {
      copy_warp.bring(cursor.next());
    }
    let_next_call_start();
  } else {
    const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
    wait_for_call_ahead();
    note_segments(call, memory, cursor);
    if (maybe_empty_blocks) write_empty_blocks<Element, kVHeadDim>(call, kTileM);
  }
  __syncwarp();
  if (share.size > 1) cluster_wait();
}

/// Which calls a kernel is for: all, or the common ones of a kind of partition.
enum class Calls : std::uint8_t { kAny, kCommonStreamK, kCommonWholeTiles };

/// Empty where a block has too little shared memory for it: never launched there. Paged caches
/// have a kernel of their own, and common calls have: with the code of all, each takes longer.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, bool kPaged, Calls kCalls>
__global__ void __launch_bounds__(
    BlockMemoryHere<Element, kHeadDim, kVHeadDim, kRowTiles>::kThreads, 1)
    lean_tile_kernel(const __grid_constant__ Call call) {
  extern __shared__ __align__(1024) std::byte bytes[];
  __builtin_assume((call.layout != KvLayout::kContiguous) == kPaged);
  if constexpr (kCalls != Calls::kAny) {
    for_each_common_condition(call, kCalls == Calls::kCommonStreamK,
                              [](bool holds) { __builtin_assume(holds); });
  }
  if constexpr (BlockMemoryHere<Element, kHeadDim, kVHeadDim, kRowTiles>::kFits) {
    run_block<Element, kHeadDim, kVHeadDim, kRowTiles, kPaged>(call, bytes);
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

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, Calls kCalls>
[[nodiscard]] KernelCode kernel_code() {
  return {reinterpret_cast<const void*>(
              &lean_tile_kernel<Element, kHeadDim, kVHeadDim, kRowTiles, false, kCalls>),
          reinterpret_cast<const void*>(
              &lean_tile_kernel<Element, kHeadDim, kVHeadDim, kRowTiles, true, kCalls>)};
}

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
[[nodiscard]] CompiledKernel compiled_kernel() {
  CompiledKernel row;
  row.type = kElementType<Element>;
  row.head_dim = kHeadDim;
  row.v_head_dim = kVHeadDim;
  row.row_tiles = kRowTiles;
  row.any = kernel_code<Element, kHeadDim, kVHeadDim, kRowTiles, Calls::kAny>();
  if constexpr (kRowTiles == 1) {
    row.common_stream_k =
        kernel_code<Element, kHeadDim, kVHeadDim, kRowTiles, Calls::kCommonStreamK>();
    row.common_whole_tiles =
        kernel_code<Element, kHeadDim, kVHeadDim, kRowTiles, Calls::kCommonWholeTiles>();
  }
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
  row.any.contiguous = row.any.paged = reinterpret_cast<const void*>(
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
