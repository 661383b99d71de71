// The kernel: for each segment of my work range { for each 16 keys { S = K·Qᵀ, update
// the states, O += Vᵀ·P }; write the output, or publish a partial and, if last, merge }.
// One launch; nobody waits for another block (LeanAttention, arXiv 2405.10480).
#pragma once

#include "cuda/kernel_table.h"
#include "cuda/key_rows.cuh"
#include "cuda/lean_tile.cuh"
#include "cuda/merge.cuh"

namespace leanattn::cuda {

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
    return queries(warps) + Queries::kBytes;
  }
  [[nodiscard]] static constexpr __host__ __device__ int line(int warps) {
    return merge(warps) + MergeMemory<kVHeadDim>::bytes(warps);
  }
  [[nodiscard]] static constexpr __host__ __device__ int bytes(int warps) {
    return line(warps) + static_cast<int>(sizeof(Line));
  }
};

[[nodiscard]] __device__ inline std::int64_t nanoseconds() {
  std::int64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
__global__ void __launch_bounds__(256, 1) lean_tile_kernel(const __grid_constant__ Call call) {
  using Memory = BlockMemory<Element, kHeadDim, kVHeadDim, kRowTiles>;
  constexpr int kTileM = 8 * kRowTiles;
  extern __shared__ __align__(1024) std::byte memory[];
  std::byte* ring = memory + warp_id() * Memory::kRingBytes;
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
  ChunkLoader<Element, kHeadDim, kVHeadDim> loader(call, cursor, warp_id(), num_warps());
#pragma unroll
  for (int stage = 0; stage < Memory::kStages; ++stage) {
    loader.issue(ring + stage * Memory::Loader::kStageBytes);
  }
  wait_for_call_ahead();
  write_empty_blocks<Element, kVHeadDim>(call, kTileM);

  const float scale_log2 = call.scale * kLog2E;
  QueryTile<Element, kHeadDim, kRowTiles> queries;
  WarpTile<Element, kHeadDim, kVHeadDim, kRowTiles> tile;
  int stage = 0;
  while (!cursor.done()) {
    const Segment segment = cursor.next();
    queries.load(call, segment, memory + Memory::queries(num_warps()));
    tile.clear();
    for (int key = segment.keys.begin / kChunk * kChunk + warp_id() * kChunk;
         key < segment.keys.end; key += num_warps() * kChunk) {
      std::byte* at = ring + stage * Memory::Loader::kStageBytes;
      cute::cp_async_wait<Memory::kStages - 1>();
      __syncwarp();
      tile.take(call, segment, queries, at, key, scale_log2);
      __syncwarp();
      loader.issue(at);
      stage = stage + 1 == Memory::kStages ? 0 : stage + 1;
    }
    if (cursor.done()) let_next_call_start();
    tile.finish();
    finish_segment<Element, kVHeadDim, kRowTiles>(
        call, cursor, segment, tile, memory + Memory::merge(num_warps()), worker);
  }
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x + 1] = nanoseconds();
  }
}

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
  const int lean_tiles = lean_tiles_of_keys(segment.block.keys, call.tile_n).size();
  if (lean_tiles == 0) return;  // written already
  const int rows = rows_of_block(call, segment.block.q_len, segment.row_block, kTileM).size();
  // The first worker of those whose share is the whole tile wrote it.
  const int owner = share_of(lean_tiles, call.num_splits, 0);
  if (share_of(lean_tiles, call.num_splits, lean_tiles - 1) == owner) return;
  const auto slot = [&](int split) { return index * std::int64_t{call.num_splits} + split; };
  const auto empty = [&](int split) {
    return even_share(lean_tiles, call.num_splits, split).empty();
  };
  for (int t = 0; 8 * t < rows; ++t) {
    for (int i = warp_id(); i < slices_of_rows<kVHeadDim>(t, rows); i += num_warps()) {
      const int slice = t * PositionPlace<kVHeadDim>::kSlices + i;
      const PositionPlace<kVHeadDim> at(slice, rows);
      const Position position = merge_positions(
          call.num_splits,
          [&](int split) {
            return empty(split) ? SoftmaxState{} : SlicePlace(call, slot(split), slice).state();
          },
          [&](int split) {
            return empty(split) ? float4{} : SlicePlace(call, slot(split), slice).out();
          });
      if (at.real) write_position<Element>(call, segment, kTileM, at, position);
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
