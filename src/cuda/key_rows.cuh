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

/// How the lanes of a warp share the copying of 16 rows: a lane has one piece of every panel
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
    constexpr int kRowBytes = Memory::kPanel * 2;
    const unsigned to = Memory::row_offset(row()) ^ static_cast<unsigned>(column() * 2);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Element* from = row_pointer(step);
      const int r = row() + step * kRowStep;
      const bool is_valid = r >= valid.begin && r < valid.end;
      // The rows of a step are a multiple of the swizzle's bits after those of the first.
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

/// Copies chunks of 16 keys of one segment after the other. With a whole warp.
template <class Element, int kHeadDim, int kVHeadDim>
class KeyCopier {
 public:
  __device__ explicit KeyCopier(const Call& call) : call_(call) {
    contiguous_ = call.layout == KvLayout::kContiguous;
    one_page_ = contiguous_ || call.page_size.value() % kChunk == 0;
  }

  __device__ void begin(const Segment& segment) {
    keys_ = segment.keys;
    const auto* k = static_cast<const Element*>(call_.k.data) +
                    segment.kv_head * call_.k.head_stride;
    const auto* v = static_cast<const Element*>(call_.v.data) +
                    segment.kv_head * call_.v.head_stride;
    if (contiguous_) {
      const std::int64_t row = call_.cache_rows.data == nullptr
                                   ? segment.sequence
                                   : load_index(call_.cache_rows, segment.sequence);
      k += row * call_.k.page_stride;
      v += row * call_.v.page_stride;
    } else {
      table_ = call_.layout == KvLayout::kPagedDense
                   ? segment.sequence * call_.page_table.row_stride
                   : load_index(call_.page_indptr, segment.sequence);
    }
    k_ = k;
    v_ = v;
  }

  /// The page of this lane's key of the chunk from `first_key` on. To be asked for well
  /// before the chunk is copied.
  [[nodiscard]] __device__ int page_of(int first_key) const {
    if (contiguous_ || first_key >= keys_.end) return 0;
    return load_index(call_.page_table, table_ + lane_key(first_key) / call_.page_size);
  }

  /// Starts copying the chunk from `first_key` on, which holds a key of the segment.
  __device__ void copy(const ChunkMemory& to, int first_key, int page) const {
    const Range32 valid{keys_.begin - first_key, keys_.end - first_key};
    if (!call_.copies_aligned) {
      copy_unaligned(to, first_key, page, valid);
    } else if (one_page_) {
      copy_page<kHeadDim>(to.k, call_.k, k_, first_key, page, valid);
      copy_page<kVHeadDim>(to.v, call_.v, v_, first_key, page, valid);
    } else {
      copy_keys<kHeadDim>(to.k, call_.k, k_, first_key, page, valid);
      copy_keys<kVHeadDim>(to.v, call_.v, v_, first_key, page, valid);
    }
  }

 private:
  /// This lane's key of a chunk, or the nearest one that is the segment's.
  [[nodiscard]] __device__ int lane_key(int first_key) const {
    return max(keys_.begin, min(first_key + lane_id() % kChunk, keys_.end - 1));
  }

  /// Elements before `key`, in its page.
  [[nodiscard]] __device__ std::int64_t offset_of(const CacheTensor& cache, int key,
                                                  int page) const {
    if (contiguous_) return key * cache.slot_stride;
    return page * cache.page_stride + key % call_.page_size * cache.slot_stride;
  }

  /// All 16 keys in one page: rows are a stride apart.
  template <int kDim>
  __device__ void copy_page(std::byte* tile, const CacheTensor& cache, const Element* head,
                            int first_key, int page, Range32 valid) const {
    using Map = CopyMap<kDim>;
    const Element* from = head + offset_of(cache, first_key, page) +
                          Map::row() * cache.slot_stride + Map::column();
    const std::int64_t stride = Map::kRowStep * cache.slot_stride;
    Map::template copy<Element>(
        tile,
        [&](int) {
          const Element* row = from;
          from += stride;
          return row;
        },
        valid);
  }

  /// Every key in a page of its own: the lanes tell each other.
  template <int kDim>
  __device__ void copy_keys(std::byte* tile, const CacheTensor& cache, const Element* head,
                            int first_key, int page, Range32 valid) const {
    using Map = CopyMap<kDim>;
    const std::int64_t mine = offset_of(cache, lane_key(first_key), page);
    const Element* column = head + Map::column();
    Map::template copy<Element>(
        tile,
        [&](int step) { return column + shuffle(mine, Map::row() + step * Map::kRowStep); },
        valid);
  }

  __device__ void copy_unaligned(const ChunkMemory& to, int first_key, int page,
                                 Range32 valid) const {
    const int row = lane_id() % kChunk;
    const bool is_valid = row >= valid.begin && row < valid.end;
    const int key = lane_key(first_key);
    if (lane_id() < kChunk) {
      copy_unaligned_row<Element, kHeadDim>(to.k, k_ + offset_of(call_.k, key, page), row,
                                            is_valid);
    } else {
      copy_unaligned_row<Element, kVHeadDim>(to.v, v_ + offset_of(call_.v, key, page), row,
                                             is_valid);
    }
  }

  const Call& call_;
  bool contiguous_;
  bool one_page_;
  Range32 keys_{};             // of the segment
  const Element* k_ = nullptr;  // the head's first (contiguous: of the cache row)
  const Element* v_ = nullptr;
  std::int64_t table_ = 0;     // entries before the sequence's first page
};

}  // namespace leanattn::cuda
