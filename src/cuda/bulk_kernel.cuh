// The kernel with Hopper's own loads. Of a block's warps, eight (or four) have the tiles;
// one keeps a ring of stages full by bulk tensor copies; one, the scribe, brings the queries
// and notes what each segment is. The warps with the tiles see nothing of schedule, pages
// or addresses: their code is what 16 keys need, and short. After a call's keys have passed
// through the L2, an SM fetches every instruction from memory (docs/kernels.md).
#pragma once

#include <cute/arch/copy_sm90_tma.hpp>

#include "cuda/barrier.cuh"
#include "cuda/kv_maps.h"
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
struct BulkMemory {
  using QMemory = typename QueryTile<Element, kHeadDim, kRowTiles>::Memory;
  using KMemory = TileMemory<kChunk, kHeadDim>;
  using VMemory = TileMemory<kChunk, kVHeadDim>;
  /// Warps with a tile. Four share a stage, 16 keys each; groups of four take turns.
  static constexpr int kStageWarps = 4;
  static constexpr int kGroups = kHeadDim + kVHeadDim <= 320 ? 2 : 1;
  static constexpr int kWarps = kGroups * kStageWarps;
  static constexpr int kThreads = (kWarps + 4) * kLanes;  // whole warpgroups; two warps idle
  static constexpr int kKeys = kStageWarps * kChunk;
  static constexpr int kKBytes = kStageWarps * KMemory::kBytes;
  static constexpr int kStageBytes = kKBytes + kStageWarps * VMemory::kBytes;
  static constexpr int kNotes = 2;
  /// What the blocks of a cluster leave for each other; two, so that one is written while
  /// the other is read.
  static constexpr int kClusterFloats = num_slices_of(kRowTiles, kVHeadDim) * kSliceFloats;

  static constexpr int kRestBytes =
      MergeMemory<kVHeadDim>::bytes(kWarps) + 2 * kClusterFloats * 4 +
      kNotes * (QMemory::kBytes + static_cast<int>(sizeof(SegmentNote))) +
      static_cast<int>(sizeof(Line)) + 32 * 8;
  static constexpr int kMostStages = (227 * 1024 - kRestBytes) / kStageBytes;
  static constexpr int kStages = (kMostStages < 12 ? kMostStages : 12) / kGroups * kGroups;
  static_assert(kStages >= 2);
  static constexpr int kBytes = kStages * kStageBytes + kRestBytes;

  std::byte* ring;     // [kStages][K of kKeys, V of kKeys]
  std::byte* queries;  // [kNotes]
  std::byte* merge;
  float* cluster;      // [2][kClusterFloats]
  SegmentNote* notes;  // [kNotes]
  Barrier* full;       // [kStages]
  Barrier* empty;      // [kStages]
  Barrier* noted;      // [kNotes]
  Barrier* read;       // [kNotes]
  Barrier* met;        // all warps of the cluster have left their slices
  Line* line;

  __device__ explicit BulkMemory(std::byte* memory)
      : ring(memory),
        queries(ring + kStages * kStageBytes),
        merge(queries + kNotes * QMemory::kBytes),
        cluster(reinterpret_cast<float*>(merge + MergeMemory<kVHeadDim>::bytes(kWarps))),
        notes(reinterpret_cast<SegmentNote*>(cluster + 2 * kClusterFloats)),
        full(reinterpret_cast<Barrier*>(notes + kNotes)),
        empty(full + kStages),
        noted(empty + kStages),
        read(noted + kNotes),
        met(read + kNotes),
        line(reinterpret_cast<Line*>(met + 1)) {
    static_assert(2 * kStages + 2 * kNotes + 1 <= 32);
  }

  __device__ void init_barriers(int cluster_size) const {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(kStageWarps);
    }
    for (int i = 0; i < kNotes; ++i) {
      noted[i].init(1);
      read[i].init(kWarps);
    }
    met->init(cluster_size * kWarps);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }

  /// The rows of K that begin with row `row` of a stage, of which `rows_together` were
  /// copied at once.
  [[nodiscard]] __device__ ChunkMemory chunk(int stage, int row, int rows_together) const {
    const int copy = row / rows_together * rows_together;  // rows before the copy
    std::byte* at = ring + stage * kStageBytes;
    return {at + copy * kHeadDim * 2 + (row - copy) * KMemory::kPanel * 2,
            at + kKBytes + copy * kVHeadDim * 2 + (row - copy) * VMemory::kPanel * 2,
            rows_together};
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

/// The producer: keeps the ring full.
template <class Memory>
__device__ void produce(const Call& call, const KvMaps& maps, const Memory& memory,
                        Cursor& cursor, const ClusterShare& share) {
  using Load = cute::SM90_TMA_LOAD_5D;
  constexpr std::uint64_t kCachePolicy = 0x1000000000000000;  // L2: evict normally
  const int rows = call.rows_together;
  RingPlace<Memory::kStages> stage;
#pragma unroll 1
  while (!cursor.done()) {
    const Segment segment = cursor.next();
    const Range32 keys = segment.keys;
    int page = segment.sequence;  // of a contiguous cache: the row
    std::int64_t table = 0;
    if (call.layout != KvLayout::kContiguous) {
      table = call.layout == KvLayout::kPagedDense
                  ? segment.sequence * call.page_table.row_stride
                  : load_index(call.page_indptr, segment.sequence);
    } else if (call.cache_rows.data != nullptr) {
      page = load_index(call.cache_rows, segment.sequence);
    }
#pragma unroll 1
    for (int key = keys.begin / rows * rows + share.rank * Memory::kKeys; key < keys.end;
         key += share.size * Memory::kKeys) {
      // Lane i brings the i-th copy.
      int slot = key + lane_id() * rows;
      const bool copies = lane_id() * rows < Memory::kKeys && slot < keys.end;
      if (copies && call.layout != KvLayout::kContiguous) {
        const int entry = slot / call.page_size;
        page = load_index(call.page_table, table + entry);
        slot -= entry * call.page_size.value();
      }
      memory.empty[stage.index].wait(stage.parity ^ 1);
      if (lane_id() == 0) {
        const int copied = min(Memory::kKeys, ceil_div_int(keys.end - key, rows) * rows);
        memory.full[stage.index].arrive_and_expect(copied * (Memory::kStageBytes / Memory::kKeys));
      }
      __syncwarp();
      if (copies) {
        const ChunkMemory to = memory.chunk(stage.index, lane_id() * rows, rows);
        std::uint64_t* barrier = memory.full[stage.index].word();
        Load::copy(&maps.k, barrier, kCachePolicy, to.k, 0, slot, 0, segment.kv_head, page);
        Load::copy(&maps.v, barrier, kCachePolicy, to.v, 0, slot, 0, segment.kv_head, page);
      }
      __syncwarp();
      stage.advance();
    }
  }
  let_next_call_start();
}

/// The scribe: brings the queries of each segment and notes what it is.
template <class Queries, class Memory>
__device__ void note_segments(const Call& call, const Memory& memory, Cursor& cursor,
                              int worker) {
  RingPlace<Memory::kNotes> place;
  for (;;) {
    SegmentNote& note = memory.notes[place.index];
    memory.read[place.index].wait(place.parity ^ 1);
    if (cursor.done()) {
      note.end = true;
    } else {
      const Segment segment = cursor.next();
      const auto pieces = Queries::load(call, segment);
      note.segment = segment;  // all lanes the same
      if (!segment.whole()) note.partners = Partners(call, cursor, segment, worker);
      note.end = false;
      Queries::store(pieces, memory.queries + place.index * Memory::QMemory::kBytes);
    }
    __syncwarp();
    if (lane_id() == 0) memory.noted[place.index].arrive();
    if (note.end) break;
    place.advance();
  }
}

/// Rows of V that are not the segment's become zero: a weight of 0 does not hide NaN.
template <int kDim>
__device__ __noinline__ void clear_rows(const ChunkMemory& chunk, Range32 valid) {
  using VMemory = TileMemory<kChunk, kDim>;
  for (int i = lane_id(); i < kChunk * VMemory::kPieces; i += kLanes) {
    const int row = i / VMemory::kPieces;
    if (row >= valid.begin && row < valid.end) continue;
    *reinterpret_cast<uint4*>(chunk.v + VMemory::offset(row, i % VMemory::kPieces,
                                                        chunk.panel_bytes<VMemory::kPanel>())) =
        uint4{};
  }
  // The copy engine writes here next.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncwarp();
}

/// The end of a segment that a cluster's blocks shared: each leaves its slices in its own
/// shared memory, and once all have, they share the merging of them.
template <class Element, int kVHeadDim, int kRowTiles, class Memory, class Tile>
__device__ void finish_in_cluster(const Call& call, const SegmentNote& note, const Memory& memory,
                                  const Tile& tile, int warp, const ClusterShare& share,
                                  unsigned round) {
  using Place = PositionPlace<kVHeadDim>;
  float* slices = memory.cluster + (round & 1) * Memory::kClusterFloats;
  for_each_slice<kVHeadDim, kRowTiles>(
      call, note.segment, tile, memory.merge, warp, Memory::kWarps,
      [&](int slice, int, const Position& position) {
        float* at = slices + slice * kSliceFloats;
        reinterpret_cast<float4*>(at)[lane_id()] = position.out;
        reinterpret_cast<float2*>(at + 4 * kLanes)[lane_id()] = {position.state.max,
                                                                 position.state.sum};
      });
  __syncwarp();
  if (lane_id() < share.size) memory.met->arrive_at(lane_id());
  memory.met->wait_for_cluster(round & 1);

  const int rows =
      rows_of_block(call, note.segment.block.q_len, note.segment.row_block, 8 * kRowTiles).size();
  for (int t = 0; 8 * t < rows; ++t) {
    const int count = slices_of_rows<kVHeadDim>(t, rows);
    for (int i = share.rank + warp * share.size; i < count; i += share.size * Memory::kWarps) {
      const int slice = t * Place::kSlices + i;
      const Position position = merge_positions<8>(share.size, [&](int rank) {
        return ClusterPlace(slices + slice * kSliceFloats, rank);
      });
      deliver_slice<Element, kVHeadDim>(call, note.segment, note.partners, 8 * kRowTiles, slice,
                                        rows, position);
    }
  }
}

/// A warp with a tile.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, class Memory>
__device__ void consume(const Call& call, const Memory& memory, int warp,
                        const ClusterShare& share) {
  const float scale_log2 = call.scale * kLog2E;
  const int rows = call.rows_together;
  const int group = warp / Memory::kStageWarps;
  const int first_row = warp % Memory::kStageWarps * kChunk;  // of a stage
  const ChunkMemory first_stage = memory.chunk(0, first_row, rows);
  QueryTile<Element, kHeadDim, kRowTiles> queries;
  WarpTile<Element, kHeadDim, kVHeadDim, kRowTiles> tile;
  RingPlace<Memory::kStages> stage;
  stage.index = group;
  RingPlace<Memory::kNotes> note;
  int stages_before = 0;  // of earlier segments
#pragma unroll 1
  for (unsigned round = 0;; ++round, note.advance()) {
    memory.noted[note.index].wait(note.parity);
    const SegmentNote& noted = memory.notes[note.index];
    if (noted.end) break;
    const Range32 keys = noted.segment.keys;
    const int first_key = keys.begin / rows * rows;
    const int num_stages = share.stages_of(ceil_div_int(keys.end - first_key, Memory::kKeys));
    queries.attach(memory.queries + note.index * Memory::QMemory::kBytes);
    tile.clear();
#pragma unroll 1
    for (int i = (group - stages_before) & (Memory::kGroups - 1); i < num_stages;
         i += Memory::kGroups) {
      const int key = first_key + (share.rank + i * share.size) * Memory::kKeys + first_row;
      memory.full[stage.index].wait(stage.parity);
      if (key < keys.end && key + kChunk > keys.begin) {
        const int before = stage.index * Memory::kStageBytes;
        const ChunkMemory chunk{first_stage.k + before, first_stage.v + before, rows};
        if (key < keys.begin || key + kChunk > keys.end) {
          clear_rows<kVHeadDim>(chunk, {keys.begin - key, keys.end - key});
        }
        tile.take(call, noted.segment, queries, chunk, key, scale_log2);
      }
      __syncwarp();
      if (lane_id() == 0) memory.empty[stage.index].arrive();
      stage.advance(Memory::kGroups);
    }
    stages_before += num_stages;
    tile.finish();
    wait_for_call_ahead();
    if (share.size == 1) {
      finish_segment<Element, kVHeadDim, kRowTiles>(call, noted.segment, noted.partners, tile,
                                                    memory.merge, warp, Memory::kWarps);
    } else {
      finish_in_cluster<Element, kVHeadDim, kRowTiles>(call, noted, memory, tile, warp, share,
                                                       round);
    }
    __syncwarp();
    if (lane_id() == 0) memory.read[note.index].arrive();
  }
}

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
__global__ void __launch_bounds__(BulkMemory<Element, kHeadDim, kVHeadDim, kRowTiles>::kThreads, 1)
    bulk_kernel(const __grid_constant__ Call call, const __grid_constant__ KvMaps maps) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Memory = BulkMemory<Element, kHeadDim, kVHeadDim, kRowTiles>;
  using Queries = QueryTile<Element, kHeadDim, kRowTiles>;
  constexpr int kTileM = 8 * kRowTiles;
  extern __shared__ __align__(1024) std::byte bytes[];
  const Memory memory(bytes);
  const int warp = warp_id();
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x] = nanoseconds();
  }
  ClusterShare share;
  share.size = call.cluster.value();
  const int worker = static_cast<int>(blockIdx.x) / call.cluster;
  share.rank = static_cast<int>(blockIdx.x) - worker * share.size;
  if (threadIdx.x == 0) {
    memory.init_barriers(share.size);
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&maps.k));
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&maps.v));
  }
  if (!call.reads_early) wait_for_call_ahead();
  if (call.kind == PartitionKind::kStreamK && call.num_row_blocks > kLanes) {
    lay_out_line(call, kTileM, *memory.line);
  } else {
    __syncthreads();
  }
  if (share.size > 1) cluster_arrive();  // its barriers are ready, once it is waited for

  // Registers go by warpgroups: those with the tiles get what the others can spare.
  if (warp < Memory::kWarps) {
    if constexpr (Memory::kGroups == 2) more_registers<200>();
    if (share.size > 1) cluster_wait();
    consume<Element, kHeadDim, kVHeadDim, kRowTiles>(call, memory, warp, share);
    if (call.timeline != nullptr && threadIdx.x == 0) {
      call.timeline[2 * blockIdx.x + 1] = nanoseconds();
    }
  } else {
    if constexpr (Memory::kGroups == 2) fewer_registers<104>();
    if (warp == Memory::kWarps) {
      Cursor cursor(call, kTileM, *memory.line, worker);
      produce(call, maps, memory, cursor, share);
    } else if (warp == Memory::kWarps + 1) {
      Cursor cursor(call, kTileM, *memory.line, worker);
      const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
      wait_for_call_ahead();
      note_segments<Queries>(call, memory, cursor, worker);
      if (maybe_empty_blocks) write_empty_blocks<Element, kVHeadDim>(call, kTileM);
    }
    __syncwarp();
    if (share.size > 1) cluster_wait();
  }
  if (share.size > 1) {  // others may still read what this block left
    cluster_arrive();
    cluster_wait();
  }
#endif
}

}  // namespace leanattn::cuda
