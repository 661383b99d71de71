// Where keys lie, and how a warp brings 16 of them into shared memory.
#pragma once

#include "cuda/cursor.cuh"
#include "cuda/tile_memory.cuh"

namespace leanattn::cuda {

/// Copies one lane's row element by element: for rows that no 16-byte copy may touch.
template <class Element, int kDim>
__device__ __noinline__ void copy_unaligned_row(std::byte* tile, const Element* from, int row,
                                                bool valid) {
#pragma unroll 1
  for (int d = 0; d < kDim; ++d) {
    std::byte* to = tile + TileMemory<kChunk, kDim>::offset(row, d / 8) + d % 8 * 2;
    *reinterpret_cast<Element*>(to) = valid ? from[d] : Element(0.0f);
  }
}

/// How the lanes of a warp share the copying of 16 rows: a lane has one piece of a panel
/// and every kRowStep-th row.
template <int kDim>
struct CopyMap {
  using Memory = TileMemory<kChunk, kDim>;
  static constexpr int kPanels = kDim / Memory::kPanel;
  static constexpr int kPanelPieces = Memory::kPanel / 8;
  static constexpr int kRowStep = kLanes / kPanelPieces;
  static constexpr int kSteps = kChunk / kRowStep;

  [[nodiscard]] static __device__ int row() { return lane_id() / kPanelPieces; }
  [[nodiscard]] static __device__ int column() { return lane_id() % kPanelPieces * 8; }

  /// Starts the copies of a chunk; row_pointer(step) is where this lane's row of that step
  /// begins, in the first panel, at this lane's column. Rows not `valid` become zero and
  /// are not read.
  template <class Element, class RowPointer>
  static __device__ void copy(std::byte* tile, const RowPointer& row_pointer, Range32 valid) {
    using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>;
    const unsigned to = Memory::row_offset(row()) ^ static_cast<unsigned>(column() * 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Element* from = row_pointer(step);
      const int r = row() + step * kRowStep;
      const bool is_valid = r >= valid.begin && r < valid.end;
      // The rows of a step are a multiple of the swizzle's bits after those of the first.
      constexpr int kRowBytes = Memory::kPanel * 2;
      const unsigned moved = to ^ (Memory::row_offset(step * kRowStep) -
                                   static_cast<unsigned>(step * kRowStep * kRowBytes));
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        std::byte* at = tile + panel * Memory::kPanelBytes + step * kRowStep * kRowBytes + moved;
        Copy::copy(*reinterpret_cast<const cute::uint128_t*>(from + panel * Memory::kPanel),
                   *reinterpret_cast<cute::uint128_t*>(at), is_valid);
      }
    }
  }
};

/// Brings a warp's chunks of 16 keys of one segment after the other into stages of its
/// ring.
template <class Element, int kHeadDim, int kVHeadDim>
class ChunkLoader {
 public:
  static constexpr int kKBytes = kChunk * kHeadDim * 2;
  static constexpr int kStageBytes = kKBytes + kChunk * kVHeadDim * 2;

  __device__ ChunkLoader(const Call& call, int warp) : call_(call), warp_(warp) {}

  [[nodiscard]] __device__ bool has_chunk() const { return key_ < keys_.end; }

  /// Goes to the first of this warp's chunks of `segment`.
  __device__ void begin(const Segment& segment) {
    keys_ = segment.keys;
    key_ = keys_.begin / kChunk * kChunk + warp_ * kChunk;
    if (!has_chunk()) return;
    k_ = segment.kv_head * call_.k.head_stride;
    v_ = segment.kv_head * call_.v.head_stride;
    if (call_.layout == KvLayout::kContiguous) {
      const std::int64_t row = call_.cache_rows.data == nullptr
                                   ? segment.sequence
                                   : load_index(call_.cache_rows, segment.sequence);
      k_ += row * call_.k.page_stride;
      v_ += row * call_.v.page_stride;
    } else {
      table_ = call_.layout == KvLayout::kPagedDense
                   ? segment.sequence * call_.page_table.row_stride
                   : load_index(call_.page_indptr, segment.sequence);
    }
    look_up_page();
  }

  /// Starts copying the next chunk into `stage`, as one group of copies.
  __device__ void issue(std::byte* stage) {
    const Range32 valid{keys_.begin - key_, keys_.end - key_};
    const bool one_page =
        call_.layout == KvLayout::kContiguous || call_.page_size.value() % kChunk == 0;
    if (!call_.copies_aligned) {
      copy_unaligned(stage, valid);
    } else if (one_page) {
      copy_page<kHeadDim>(stage, call_.k, k_, valid);
      copy_page<kVHeadDim>(stage + kKBytes, call_.v, v_, valid);
    } else {
      copy_keys<kHeadDim>(stage, call_.k, k_, valid);
      copy_keys<kVHeadDim>(stage + kKBytes, call_.v, v_, valid);
    }
    cute::cp_async_fence();
    key_ += num_warps() * kChunk;
    if (has_chunk()) look_up_page();
  }

 private:
  /// This lane's key of the chunk, or the nearest one that is the segment's.
  [[nodiscard]] __device__ int lane_key() const {
    return max(keys_.begin, min(key_ + lane_id() % kChunk, keys_.end - 1));
  }

  /// The page of this lane's key, loaded a chunk before it is needed.
  __device__ void look_up_page() {
    if (call_.layout == KvLayout::kContiguous) return;
    page_ = load_index(call_.page_table, table_ + lane_key() / call_.page_size);
  }

  /// Offset in elements of `key` in that page.
  [[nodiscard]] __device__ std::int64_t offset_of(const CacheTensor& cache, int key) const {
    if (call_.layout == KvLayout::kContiguous) return key * cache.slot_stride;
    return page_ * cache.page_stride + key % call_.page_size * cache.slot_stride;
  }

  /// All 16 keys in one page: rows are a stride apart.
  template <int kDim>
  __device__ void copy_page(std::byte* tile, const CacheTensor& cache, std::int64_t head,
                            Range32 valid) const {
    using Map = CopyMap<kDim>;
    const Element* first = static_cast<const Element*>(cache.data) + head +
                           offset_of(cache, key_) + Map::row() * cache.slot_stride +
                           Map::column();
    const std::int64_t stride = Map::kRowStep * cache.slot_stride;
    Map::template copy<Element>(
        tile, [&](int step) { return first + step * stride; }, valid);
  }

  /// Every key in a page of its own: the lanes tell each other.
  template <int kDim>
  __device__ void copy_keys(std::byte* tile, const CacheTensor& cache, std::int64_t head,
                            Range32 valid) const {
    using Map = CopyMap<kDim>;
    const std::int64_t mine = head + offset_of(cache, lane_key());
    const Element* data = static_cast<const Element*>(cache.data) + Map::column();
    Map::template copy<Element>(
        tile,
        [&](int step) { return data + shuffle(mine, Map::row() + step * Map::kRowStep); }, valid);
  }

  __device__ void copy_unaligned(std::byte* stage, Range32 valid) const {
    const int row = lane_id() % kChunk;
    const bool is_valid = row >= valid.begin && row < valid.end;
    if (lane_id() < kChunk) {
      copy_unaligned_row<Element, kHeadDim>(
          stage, static_cast<const Element*>(call_.k.data) + k_ + offset_of(call_.k, lane_key()),
          row, is_valid);
    } else {
      copy_unaligned_row<Element, kVHeadDim>(
          stage + kKBytes,
          static_cast<const Element*>(call_.v.data) + v_ + offset_of(call_.v, lane_key()), row,
          is_valid);
    }
  }

  const Call& call_;
  int warp_;
  Range32 keys_{};           // of the segment
  int key_ = 0;              // first of the next chunk
  int page_ = 0;             // of this lane's key
  std::int64_t k_ = 0;       // elements before the head (contiguous: and the cache row)
  std::int64_t v_ = 0;
  std::int64_t table_ = 0;   // entries before the sequence's first page
};

}  // namespace leanattn::cuda
