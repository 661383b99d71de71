// The kernel: for each segment of my work range { for each 16 keys { S = K·Qᵀ, update
// the states, O += Vᵀ·P }; write the output, or publish a partial and, if last, merge }.
// One launch; nobody waits for another block (LeanAttention, arXiv 2405.10480).
#pragma once

#include "cuda/bulk_kernel.cuh"
#include "cuda/kernel_table.h"
#include "cuda/key_rows.cuh"
#include "cuda/lean_tile.cuh"
#include "cuda/merge.cuh"

namespace leanattn::cuda {

/// What a warp needs of its segments between their beginning and their end; not kept in
/// registers, which the tile fills.
struct alignas(16) WarpNotes {
  Segment segments[2];  // the one at hand and the one the loader has run ahead to
  Partners partners;
};

/// Shared memory of a block: the ring of each warp, then what the block shares.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
struct BlockMemory {
  using Loader = ChunkLoader<Element, kHeadDim, kVHeadDim>;
  using Queries = QueryTile<Element, kHeadDim, kRowTiles>;

  /// Stages of a ring: enough for 128 KB in flight where a block of 8 warps has an SM for
  /// itself (64 KB saturate an H200; see docs/kernels.md).
  static constexpr int kStages = Loader::kStageBytes <= 5120   ? 4
                                 : Loader::kStageBytes <= 6144 ? 3
                                                               : 2;
  static constexpr int kRingBytes = kStages * Loader::kStageBytes;

  [[nodiscard]] static constexpr __host__ __device__ int queries(int warps) {
    return warps * kRingBytes;
  }
  [[nodiscard]] static constexpr __host__ __device__ int merge(int warps) {
    return queries(warps) + Queries::Memory::kBytes;
  }
  [[nodiscard]] static constexpr __host__ __device__ int line(int warps) {
    return merge(warps) + MergeMemory<kVHeadDim>::bytes(warps);
  }
  [[nodiscard]] static constexpr __host__ __device__ int notes(int warps) {
    return line(warps) + static_cast<int>(sizeof(Line) + 15) / 16 * 16;
  }
  [[nodiscard]] static constexpr __host__ __device__ int bytes(int warps) {
    return notes(warps) + warps * static_cast<int>(sizeof(WarpNotes));
  }
};

/// Waits until the oldest of `filled` groups of copies has arrived, for the whole warp.
template <int kStages>
__device__ void wait_for_oldest(int filled) {
  static_assert(kStages <= 4);
  if (filled == 1) {
    cute::cp_async_wait<0>();
  } else if (filled == 2) {
    cute::cp_async_wait<1>();
  } else if (filled == 3) {
    cute::cp_async_wait<2>();
  } else {
    cute::cp_async_wait<3>();
  }
  __syncwarp();
}

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
__global__ void __launch_bounds__(256, 1) lean_tile_kernel(const __grid_constant__ Call call) {
  using Memory = BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles>;
  constexpr int kTileM = 8 * kRowTiles;
  extern __shared__ __align__(1024) std::byte memory[];
  const int warp = warp_id();
  std::byte* ring = memory + warp * Memory::kRingBytes;
  Line& line = *reinterpret_cast<Line*>(memory + Memory::line(num_warps()));
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x] = nanoseconds();
  }

  if (!call.reads_early) wait_for_call_ahead();
  if (call.kind == PartitionKind::kStreamK && call.num_row_blocks > kLanes) {
    lay_out_line(call, kTileM, line);
  }
  const int worker = static_cast<int>(blockIdx.x);
  Cursor cursor(call, kTileM, line, worker);
  const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
  ChunkLoader<Element, kHeadDim, kVHeadDim> loader(call, warp);
  QueryTile<Element, kHeadDim, kRowTiles> queries;
  WarpTile<Element, kHeadDim, kVHeadDim, kRowTiles> tile;
  const float scale_log2 = call.scale * kLog2E;

  // The loader runs ahead of the tile, into the next segment. A step per turn of one loop
  // keeps the code small, which an SM fetches from memory as it fetches the keys.
  WarpNotes& notes = reinterpret_cast<WarpNotes*>(memory + Memory::notes(num_warps()))[warp];
  int slot = 0;  // of the segment at hand
  bool is_open = false, is_ahead = false;
  int end = 0;
  int key = 0;
  int filled = 0;  // stages of the ring
  int stage = 0;   // the next to be filled
#pragma unroll 1
  for (;;) {
#pragma unroll 1
    while (filled < Memory::kStages) {
      if (!loader.has_chunk()) {
        if (is_ahead || cursor.done()) break;
        const Segment ahead = cursor.next();
        notes.segments[slot ^ 1] = ahead;  // every lane the same
        is_ahead = true;
        loader.begin(ahead);
        continue;
      }
      loader.issue(ring + stage * Memory::Loader::kStageBytes);
      stage = stage + 1 == Memory::kStages ? 0 : stage + 1;
      ++filled;
    }
    if (!is_open) {
      wait_for_call_ahead();
      if (!is_ahead) break;
      slot ^= 1;
      __syncwarp();
      const Segment& segment = notes.segments[slot];
      is_ahead = false;
      is_open = true;
      end = segment.keys.end;
      key = segment.keys.begin / kChunk * kChunk + warp * kChunk;
      std::byte* sQ = memory + Memory::queries(num_warps());
      sync_warps(num_warps());  // all have read what lay there before
      if (warp == 0) queries.store(queries.load(call, segment), sQ);
      sync_warps(num_warps());
      queries.attach(sQ);
      tile.clear();
      if (!segment.whole()) notes.partners = Partners(call, cursor, segment, worker);
    } else if (key < end) {
      wait_for_oldest<Memory::kStages>(filled);
      int oldest = stage - filled;
      if (oldest < 0) oldest += Memory::kStages;
      std::byte* at = ring + oldest * Memory::Loader::kStageBytes;
      tile.take(call, notes.segments[slot], queries, {at, at + Memory::Loader::kKBytes}, key,
                scale_log2);
      __syncwarp();
      --filled;
      key += num_warps() * kChunk;
    } else {
      if (!is_ahead && cursor.done()) let_next_call_start();
      tile.finish();
      __syncwarp();
      finish_segment<Element, kVHeadDim, kRowTiles>(
          call, notes.segments[slot], notes.partners, tile, memory + Memory::merge(num_warps()), warp,
          num_warps());
      is_open = false;
    }
  }
  if (maybe_empty_blocks && warp == 0) write_empty_blocks<Element, kVHeadDim>(call, kTileM);
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x + 1] = nanoseconds();
  }
}

/// The slice of a split, which may have had no LeanTile.
struct SplitPlace {
  SlicePlace slice;
  bool empty;
  [[nodiscard]] __device__ SoftmaxState state() const {
    return empty ? SoftmaxState{} : slice.state();
  }
  [[nodiscard]] __device__ float4 out() const { return empty ? float4{} : slice.out(); }
};

/// The second launch of fixed_split: merges the partials of each output tile. A block per
/// output tile.
template <class Element, int kVHeadDim, int kRowTiles>
__global__ void __launch_bounds__(256) combine_kernel(const __grid_constant__ Call call) {
  constexpr int kTileM = 8 * kRowTiles;
  const int index = static_cast<int>(blockIdx.x);
  const int row_block = index / call.num_kv_heads;
  wait_for_call_ahead();
  Segment segment;
  segment.block = row_block_of(call, row_block, kTileM);
  segment.sequence = row_block / call.blocks_per_sequence;
  segment.row_block = row_block % call.blocks_per_sequence;
  segment.kv_head = index % call.num_kv_heads;
  const int lean_tiles = num_lean_tiles(call, segment.block);
  const int splits = call.num_splits.value();
  if (lean_tiles == 0) return;  // written already
  const int rows = rows_of_block(call, segment.block.q_len, segment.row_block, kTileM).size();
  // The first worker of those whose share is the whole tile wrote it.
  const int owner = share_of(lean_tiles, splits, 0);
  if (share_of(lean_tiles, splits, lean_tiles - 1) == owner) return;
  const auto slot = [&](int split) { return std::int64_t{index} * splits + split; };
  const auto empty = [&](int split) {
    return even_share(lean_tiles, call.num_splits, split).empty();
  };
  const int warp = warp_id();
  for (int t = 0; 8 * t < rows; ++t) {
    for (int i = warp; i < slices_of_rows<kVHeadDim>(t, rows); i += num_warps()) {
      const int slice = t * PositionPlace<kVHeadDim>::kSlices + i;
      const PositionPlace<kVHeadDim> at(slice, rows);
      const SlicePlace first(call, slot(0), slice);
      const std::int64_t step = std::int64_t{call.num_slices} * kSliceFloats;
      const Position position = merge_positions<8>(
          splits, [&](int split) { return SplitPlace{first.after(split * step), empty(split)}; });
      if (!at.real) continue;
      const OutputPlace place(call, segment, segment.row_block * kTileM + at.row);
      write_position<Element>(call, place, at.dim, position);
    }
  }
}

template <class Element>
inline constexpr ElementType kElementType = ElementType::kFloat16;
template <>
inline constexpr ElementType kElementType<cutlass::bfloat16_t> = ElementType::kBFloat16;

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
[[nodiscard]] CompiledKernel compiled_kernel() {
  using Memory = BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles>;
  constexpr int kMostSharedBytes = 227 * 1024;  // of a block, on compute capability 9.0
  CompiledKernel row;
  row.type = kElementType<Element>;
  row.head_dim = kHeadDim;
  row.v_head_dim = kVHeadDim;
  row.row_tiles = kRowTiles;
  row.kernel = reinterpret_cast<const void*>(
      &lean_tile_kernel<Element, kHeadDim, kVHeadDim, kRowTiles>);
  row.combine = reinterpret_cast<const void*>(&combine_kernel<Element, kVHeadDim, kRowTiles>);
  row.shared_bytes = &Memory::bytes;
  using Bulk = BulkMemory<Element, kHeadDim, kVHeadDim, kRowTiles>;
  row.bulk_kernel =
      reinterpret_cast<const void*>(&bulk_kernel<Element, kHeadDim, kVHeadDim, kRowTiles>);
  row.bulk_shared_bytes = Bulk::kBytes;
  row.bulk_threads = Bulk::kThreads;
  row.bulk_keys = Bulk::kKeys;
  static_assert(Bulk::kBytes <= kMostSharedBytes);
  row.most_warps = Memory::bytes(8) <= kMostSharedBytes ? 8 : 4;
  return row;
}

template <class Element, int kHeadDim, int kVHeadDim>
std::span<const CompiledKernel> LeanTileKernels<Element, kHeadDim, kVHeadDim>::rows() {
  // O of 8 rows takes kVHeadDim / 4 registers of a lane: at most 128 of its 255.
  if constexpr (kVHeadDim <= 128) {
    static const CompiledKernel table[] = {compiled_kernel<Element, kHeadDim, kVHeadDim, 1>(),
                                           compiled_kernel<Element, kHeadDim, kVHeadDim, 2>(),
                                           compiled_kernel<Element, kHeadDim, kVHeadDim, 4>()};
    return table;
  } else {
    static const CompiledKernel table[] = {compiled_kernel<Element, kHeadDim, kVHeadDim, 1>(),
                                           compiled_kernel<Element, kHeadDim, kVHeadDim, 2>()};
    return table;
  }
}

}  // namespace leanattn::cuda
