// The end of an output tile: sinks, normalisation, rounding, out and lse.
#pragma once

#include "cuda/score_rules.cuh"
#include "cuda/tile_memory.cuh"

namespace leanattn::cuda {

/// 4 neighbouring elements of one row of O, and the row's state.
struct Position {
  SoftmaxState state;
  float4 out{};
};

/// One of the 32 positions of slice `slice` of an output tile of rows of `kVHeadDim`
/// elements; 8 rows fill a whole number of slices, the last perhaps in part.
template <int kVHeadDim>
struct PositionPlace {
  static constexpr int kQuads = kVHeadDim / 4;  // positions of a row
  static constexpr int kSlices = (8 * kQuads + kLanes - 1) / kLanes;

  int row = 0;  // within the output tile
  int dim = 0;  // first of the 4
  bool real = false;

  __device__ PositionPlace(int slice, int num_rows) {
    const int in_group = slice % kSlices * kLanes + lane_id();
    row = slice / kSlices * 8 + in_group / kQuads;
    dim = in_group % kQuads * 4;
    real = in_group < 8 * kQuads && row < num_rows;
  }
};

/// Slices of an output tile that hold rows, of the 8 rows of group `row_tile`.
template <int kVHeadDim>
[[nodiscard]] __device__ inline int slices_of_rows(int row_tile, int num_rows) {
  using Place = PositionPlace<kVHeadDim>;
  return ceil_div_int(max(0, min(8, num_rows - 8 * row_tile)) * Place::kQuads, kLanes);
}

template <class Element>
[[nodiscard]] __device__ inline std::uint32_t bits_of(float value) {
  const Element element(value);
  return reinterpret_cast<const std::uint16_t&>(element);
}

/// Writes 4 elements of a row of `tensor` at `offset` elements.
template <class Element>
__device__ void store_quad(const Call& call, std::int64_t offset, const float4& value) {
  if (call.float_out) {
    auto* to = static_cast<float*>(call.out.data) + offset;
    if ((reinterpret_cast<std::uintptr_t>(to) & 15u) == 0) {
      *reinterpret_cast<float4*>(to) = value;
    } else {
      to[0] = value.x, to[1] = value.y, to[2] = value.z, to[3] = value.w;
    }
    return;
  }
  auto* to = static_cast<std::uint16_t*>(call.out.data) + offset;
  const std::uint32_t x = bits_of<Element>(value.x), y = bits_of<Element>(value.y);
  const std::uint32_t z = bits_of<Element>(value.z), w = bits_of<Element>(value.w);
  if ((reinterpret_cast<std::uintptr_t>(to) & 7u) == 0) {
    *reinterpret_cast<uint2*>(to) = {x | y << 16, z | w << 16};
  } else {
    to[0] = static_cast<std::uint16_t>(x), to[1] = static_cast<std::uint16_t>(y);
    to[2] = static_cast<std::uint16_t>(z), to[3] = static_cast<std::uint16_t>(w);
  }
}

/// Where the output of a packed row goes, and its sink: found before the merge is waited for.
struct OutputPlace {
  std::int64_t out = 0;  // elements
  std::int64_t lse = 0;
  float sink = 0;

  __device__ OutputPlace(const Call& call, const Segment& segment, int packed_row) {
    const QueryPlace place = query_place(call, segment, packed_row);
    out = place.offset(call.out);
    if (call.lse.data != nullptr) lse = place.offset(call.lse);
    if (call.sinks.data != nullptr) {
      sink = load_element(call.sinks.data, call.sinks.type, place.q_head * call.sinks.strides[0]);
    }
  }
};

/// Turns a merged position, of elements `dim` … of a row, into output; the lane with the
/// row's first element writes lse.
template <class Element>
__device__ void write_position(const Call& call, const OutputPlace& place, int dim,
                               Position position) {
  const bool empty = position.state.empty();  // O was never written then
  float factor = 1;
  if (call.sinks.data != nullptr) factor = add_sink(position.state, place.sink);
  factor *= normaliser(position.state);
  const float4& o = position.out;
  const float4 out =
      empty ? float4{} : float4{o.x * factor, o.y * factor, o.z * factor, o.w * factor};
  store_quad<Element>(call, place.out + dim, out);
  if (call.lse.data != nullptr && dim == 0) {
    static_cast<float*>(call.lse.data)[place.lse] = lse_of(position.state);
  }
}

/// Writes the rows of row blocks in which no row sees a key. They have no LeanTile, hence
/// no worker: one warp of every block takes its part of them.
template <class Element, int kVHeadDim>
__device__ __noinline__ void write_empty_blocks(const Call& call, int tile_m) {
  const int step = static_cast<int>(gridDim.x);
  for (int first = static_cast<int>(blockIdx.x); first < call.num_row_blocks;
       first += step * kLanes) {
    const int mine = first + lane_id() * step;
    bool empty = false;
    if (mine < call.num_row_blocks) empty = row_block_of(call, mine, tile_m).keys.empty();
    for (unsigned left = __ballot_sync(kAllLanes, empty); left != 0; left &= left - 1) {
      const int row_block = first + (__ffs(static_cast<int>(left)) - 1) * step;
      Segment segment;
      segment.block = row_block_of(call, row_block, tile_m);
      segment.sequence = row_block / call.blocks_per_sequence;
      segment.row_block = row_block % call.blocks_per_sequence;
      const int rows = rows_of(call, segment, tile_m).size();
      for (segment.kv_head = 0; segment.kv_head < call.num_kv_heads.value(); ++segment.kv_head) {
        for (int row_tile = 0; 8 * row_tile < rows; ++row_tile) {
          for (int slice = 0; slice < slices_of_rows<kVHeadDim>(row_tile, rows); ++slice) {
            const PositionPlace<kVHeadDim> at(row_tile * PositionPlace<kVHeadDim>::kSlices + slice,
                                              rows);
            if (!at.real) continue;
            const OutputPlace place(call, segment, segment.row_block * tile_m + at.row);
            write_position<Element>(call, place, at.dim, {});
          }
        }
      }
    }
  }
}

}  // namespace leanattn::cuda
