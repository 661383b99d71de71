// The second launch of fixed_split, as FlashDecoding has it.
#pragma once

#include "cuda/merge.cuh"

namespace leanattn::cuda {

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
  const int rows = rows_of(call, segment, kTileM).size();
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
      const Position position = merge_positions<8>(splits, [&](int split) {
        return SplitPlace{first.after(split * step), empty(split)};
      });
      if (!at.real) continue;
      const OutputPlace place(call, segment, segment.row_block * kTileM + at.row);
      write_position<Element>(call, place, at.dim, position);
    }
  }
}

}  // namespace leanattn::cuda
