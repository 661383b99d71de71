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
  /// Warps with a tile; of each 16 keys of a stage are its own.
  static constexpr int kWarps = kHeadDim + kVHeadDim <= 320 ? 8 : 4;
  static constexpr int kThreads = (kWarps + 2) * kLanes;
  static constexpr int kKeys = kWarps * kChunk;
  static constexpr int kKBytes = kWarps * KMemory::kBytes;
  static constexpr int kStageBytes = kKBytes + kWarps * VMemory::kBytes;
  static constexpr int kNotes = 2;

  static constexpr int kRestBytes = MergeMemory<kVHeadDim>::bytes(kWarps) +
                                    kNotes * (QMemory::kBytes + static_cast<int>(sizeof(SegmentNote))) +
                                    static_cast<int>(sizeof(Line)) + 32 * 8;
  static constexpr int kMostStages = (227 * 1024 - kRestBytes) / kStageBytes;
  static constexpr int kStages = kMostStages < 8 ? kMostStages : 8;
  static_assert(kStages >= 2);
  static constexpr int kBytes = kStages * kStageBytes + kRestBytes;

  std::byte* ring;     // [kStages][K of kKeys, V of kKeys]
  std::byte* queries;  // [kNotes]
  std::byte* merge;
  SegmentNote* notes;  // [kNotes]
  Barrier* full;       // [kStages]
  Barrier* empty;      // [kStages]
  Barrier* noted;      // [kNotes]
  Barrier* read;       // [kNotes]
  Line* line;

  __device__ explicit BulkMemory(std::byte* memory)
      : ring(memory),
        queries(ring + kStages * kStageBytes),
        merge(queries + kNotes * QMemory::kBytes),
        notes(reinterpret_cast<SegmentNote*>(merge + MergeMemory<kVHeadDim>::bytes(kWarps))),
        full(reinterpret_cast<Barrier*>(notes + kNotes)),
        empty(full + kStages),
        noted(empty + kStages),
        read(noted + kNotes),
        line(reinterpret_cast<Line*>(read + kNotes)) {
    static_assert(2 * kStages + 2 * kNotes <= 32);
  }

  __device__ void init_barriers() const {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(kWarps);
    }
    for (int i = 0; i < kNotes; ++i) {
      noted[i].init(1);
      read[i].init(kWarps);
    }
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

/// The producer: keeps the ring full.
template <class Memory>
__device__ void produce(const Call& call, const KvMaps& maps, const Memory& memory,
                        Cursor& cursor) {
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
    for (int key = keys.begin / rows * rows; key < keys.end; key += Memory::kKeys) {
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
__device__ void note_segments(const Call& call, const Memory& memory, Cursor& cursor) {
  const int worker = static_cast<int>(blockIdx.x);
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

/// A warp with a tile.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles, class Memory>
__device__ void consume(const Call& call, const Memory& memory, int warp) {
  const float scale_log2 = call.scale * kLog2E;
  const int rows = call.rows_together;
  const ChunkMemory first_stage = memory.chunk(0, warp * kChunk, rows);
  QueryTile<Element, kHeadDim, kRowTiles> queries;
  WarpTile<Element, kHeadDim, kVHeadDim, kRowTiles> tile;
  RingPlace<Memory::kStages> stage;
  RingPlace<Memory::kNotes> note;
#pragma unroll 1
  for (;; note.advance()) {
    memory.noted[note.index].wait(note.parity);
    const SegmentNote& noted = memory.notes[note.index];
    if (noted.end) break;
    const Range32 keys = noted.segment.keys;
    queries.attach(memory.queries + note.index * Memory::QMemory::kBytes);
    tile.clear();
#pragma unroll 1
    for (int first = keys.begin / rows * rows; first < keys.end; first += Memory::kKeys) {
      const int key = first + warp * kChunk;
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
      stage.advance();
    }
    tile.finish();
    wait_for_call_ahead();
    finish_segment<Element, kVHeadDim, kRowTiles>(call, noted.segment, noted.partners, tile,
                                                  memory.merge, warp, Memory::kWarps);
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
  if (threadIdx.x == 0) {
    memory.init_barriers();
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&maps.k));
    cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor*>(&maps.v));
  }
  if (!call.reads_early) wait_for_call_ahead();
  if (call.kind == PartitionKind::kStreamK && call.num_row_blocks > kLanes) {
    lay_out_line(call, kTileM, *memory.line);
  } else {
    __syncthreads();
  }

  if (warp < Memory::kWarps) {
    consume<Element, kHeadDim, kVHeadDim, kRowTiles>(call, memory, warp);
    if (call.timeline != nullptr && threadIdx.x == 0) {
      call.timeline[2 * blockIdx.x + 1] = nanoseconds();
    }
    return;
  }
  Cursor cursor(call, kTileM, *memory.line, static_cast<int>(blockIdx.x));
  if (warp == Memory::kWarps) {
    produce(call, maps, memory, cursor);
    return;
  }
  const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
  wait_for_call_ahead();
  note_segments<Queries>(call, memory, cursor);
  if (maybe_empty_blocks) write_empty_blocks<Element, kVHeadDim>(call, kTileM);
#endif
}

}  // namespace leanattn::cuda
