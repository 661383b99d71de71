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

  using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL<cute::uint128_t>;
  using CopyOrClear = cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>;

  /// Where this lane's piece of a panel goes in the rows of a step.
  [[nodiscard]] static __device__ std::byte* piece(std::byte* tile, int panel, int step) {
    constexpr int kRowBytes = Memory::kPanel * 2;
    const unsigned lane = Memory::row_offset(row()) ^ static_cast<unsigned>(column() * 2);
    // The rows of a step are a multiple of the swizzle's bits after those of the first.
    const unsigned moved = lane ^ (Memory::row_offset(step * kRowStep) -
                                   static_cast<unsigned>(step * kRowStep * kRowBytes));
    return tile + panel * Memory::kPanelBytes + step * kRowStep * kRowBytes + moved;
  }

  /// Starts the copies of 16 rows. `from` is this lane's first row, at this lane's column of
  /// the first panel; its next is `stride` elements further.
  template <class Element>
  static __device__ void copy(std::byte* tile, const Element* from, std::int64_t stride) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        Copy::copy(*reinterpret_cast<const cute::uint128_t*>(from + panel * Memory::kPanel),
                   *reinterpret_cast<cute::uint128_t*>(piece(tile, panel, step)));
      }
      from += stride;
    }
  }

  /// As `copy` for rows anywhere: row_pointer(r) is where row r begins, at this lane's column
  /// of the first panel. Rows not `valid` become zero and are not read.
  template <class Element, class RowPointer>
  static __device__ void copy_rows(std::byte* tile, const RowPointer& row_pointer, Range32 valid) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int r = row() + step * kRowStep;
      const Element* from = row_pointer(max(valid.begin, min(r, valid.end - 1)));
      const bool is_valid = r >= valid.begin && r < valid.end;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        CopyOrClear::copy(*reinterpret_cast<const cute::uint128_t*>(from + panel * Memory::kPanel),
                          *reinterpret_cast<cute::uint128_t*>(piece(tile, panel, step)), is_valid);
      }
    }
  }
};

/// Copies chunks of 16 keys of one segment after the other. With a whole warp.
template <class Element, int kHeadDim, int kVHeadDim>
class KeyCopier {
 public:
  __device__ explicit KeyCopier(const Call& call)
      : call_(call),
        contiguous_(call.layout == KvLayout::kContiguous),
        one_page_(contiguous_ || call.page_size.value() % kChunk == 0),
        k_stride_(CopyMap<kHeadDim>::kRowStep * call.k.slot_stride),
        v_stride_(CopyMap<kVHeadDim>::kRowStep * call.v.slot_stride) {}

  __device__ void begin(const Segment& segment) {
    keys_ = segment.keys;
    k_ = static_cast<const Element*>(call_.k.data) + segment.kv_head * call_.k.head_stride +
         CopyMap<kHeadDim>::column();
    v_ = static_cast<const Element*>(call_.v.data) + segment.kv_head * call_.v.head_stride +
         CopyMap<kVHeadDim>::column();
    if (contiguous_) {
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
    if (one_page_) {
      k_ += CopyMap<kHeadDim>::row() * call_.k.slot_stride;
      v_ += CopyMap<kVHeadDim>::row() * call_.v.slot_stride;
    }
  }

  /// The page of this lane's key of the chunk from `first_key` on. To be asked for well
  /// before the chunk is copied.
  [[nodiscard]] __device__ int page_of(int first_key) const {
    if (contiguous_ || first_key >= keys_.end) return 0;
    return load_index(call_.page_table, table_ + lane_key(first_key) / call_.page_size);
  }

  /// As page_of for many chunks at once: loads the page of the n-th chunk, whose keys begin at
  /// key_of(n), well before it is copied. Where a chunk lies in one page, every 32nd time the pages
  /// of 32 chunks, one a lane; else those of the chunk's keys.
  template <class KeyOf>
  __device__ void look_up(const KeyOf& key_of, int n) {
    if (contiguous_ || (one_page_ && n % kLanes != 0)) return;
    const int first_key = key_of(one_page_ ? n + lane_id() : n);
    if (!one_page_) {
      page_ = page_of(first_key);
    } else if (first_key < keys_.end) {
      page_ = load_index(call_.page_table, table_ + max(first_key, keys_.begin) / call_.page_size);
    }
  }
  /// The page of this lane's key of the n-th chunk.
  [[nodiscard]] __device__ int page(int n) const {
    return one_page_ && !contiguous_ ? shuffle(page_, n % kLanes) : page_;
  }

  /// Starts copying the chunk from `first_key` on, which holds a key of the segment.
  __device__ void copy(const ChunkMemory& to, int first_key, int page) const {
    const Range32 valid{keys_.begin - first_key, keys_.end - first_key};
    if (one_page_ && call_.copies_aligned && valid.begin <= 0 && valid.end >= kChunk) {
      // All 16 keys in one page: rows are a stride apart.
      CopyMap<kHeadDim>::copy(to.k, k_ + offset_of(call_.k, first_key, page), k_stride_);
      CopyMap<kVHeadDim>::copy(to.v, v_ + offset_of(call_.v, first_key, page), v_stride_);
    } else {
      copy_one_by_one(to, first_key, page, valid);
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

  /// Every key by itself: in a page of its own, past the segment, or where no 16-byte copy
  /// may touch. The lanes tell each other where the keys lie.
  __device__ void copy_one_by_one(const ChunkMemory& to, int first_key, int page,
                                  Range32 valid) const {
    const int key = lane_key(first_key);
    const std::int64_t k = offset_of(call_.k, key, page);
    const std::int64_t v = offset_of(call_.v, key, page);
    const Element* k_head = k_ - (one_page_ ? CopyMap<kHeadDim>::row() * call_.k.slot_stride : 0);
    const Element* v_head = v_ - (one_page_ ? CopyMap<kVHeadDim>::row() * call_.v.slot_stride : 0);
    if (call_.copies_aligned) {
      CopyMap<kHeadDim>::template copy_rows<Element>(
          to.k, [&](int row) { return k_head + shuffle(k, row); }, valid);
      CopyMap<kVHeadDim>::template copy_rows<Element>(
          to.v, [&](int row) { return v_head + shuffle(v, row); }, valid);
      return;
    }
    const int row = lane_id() % kChunk;
    const bool is_valid = row >= valid.begin && row < valid.end;
    if (lane_id() < kChunk) {
      copy_unaligned_row<Element, kHeadDim>(to.k, k_head + k - CopyMap<kHeadDim>::column(), row,
                                            is_valid);
    } else {
      copy_unaligned_row<Element, kVHeadDim>(to.v, v_head + v - CopyMap<kVHeadDim>::column(), row,
                                             is_valid);
    }
  }

  const Call& call_;
  bool contiguous_;
  bool one_page_;
  std::int64_t k_stride_;  // from a lane's row to its next, elements
  std::int64_t v_stride_;
  Range32 keys_{};              // of the segment
  const Element* k_ = nullptr;  // this lane's column of the head's first key (contiguous: of the
  const Element* v_ = nullptr;  // cache row); if in one page, of this lane's first row
  std::int64_t table_ = 0;      // entries before the sequence's first page
  int page_ = 0;
};

}  // namespace leanattn::cuda
