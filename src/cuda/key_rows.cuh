// Where keys lie, and how a warp brings rows of them into shared memory.
#pragma once

#include "cuda/async_copy.cuh"
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
  static constexpr int kPanelRowBytes = Memory::kPanel * 2;

  [[nodiscard]] static __device__ int row() { return lane_id() / kPanelPieces; }
  /// Bytes before this lane's piece of a panel, in a row.
  [[nodiscard]] static __device__ int column() { return lane_id() % kPanelPieces * 16; }

  /// Where this lane's piece of a panel goes in the rows of a step.
  [[nodiscard]] static __device__ unsigned piece(unsigned tile, int panel, int step) {
    const unsigned lane = Memory::row_offset(row()) ^ static_cast<unsigned>(column());
    // The rows of a step are a multiple of the swizzle's bits after those of the first.
    const unsigned moved = lane ^ (Memory::row_offset(step * kRowStep) -
                                   static_cast<unsigned>(step * kRowStep * kPanelRowBytes));
    return tile + panel * Memory::kPanelBytes + step * kRowStep * kPanelRowBytes + moved;
  }

  /// Starts the copies of 16 rows. `from` is this lane's first row, at this lane's column of
  /// the first panel; its next is `stride` bytes further.
  static __device__ void copy(const AsyncCopy& async, unsigned tile, const std::byte* from,
                              std::int64_t stride) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        async.copy(piece(tile, panel, step), from + panel * kPanelRowBytes);
      }
      from += stride;
    }
  }

  /// As `copy` for rows anywhere: row_pointer(r) is where row r begins, at this lane's column
  /// of the first panel. Rows not `valid` become zero and are not read.
  template <class RowPointer>
  static __device__ void copy_rows(const AsyncCopy& async, unsigned tile,
                                   const RowPointer& row_pointer, Range32 valid) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int r = row() + step * kRowStep;
      const std::byte* from = row_pointer(max(valid.begin, min(r, valid.end - 1)));
      const bool is_valid = r >= valid.begin && r < valid.end;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        async.copy_or_clear(piece(tile, panel, step), from + panel * kPanelRowBytes, is_valid);
      }
    }
  }
};

/// Copies keys and values of one segment after the other, 16 (a chunk) or 64 at a time. With
/// a whole warp.
template <class Element, int kHeadDim, int kVHeadDim>
class KeyCopier {
 public:
  static constexpr int kStageKeys = 4 * kChunk;

  __device__ KeyCopier(const Call& call, Reuse reuse)
      : call_(call),
        async_(reuse),
        contiguous_(call.layout == KvLayout::kContiguous),
        one_page_(contiguous_ || call.page_size.value() % kChunk == 0),
        k_(call.k),
        v_(call.v) {}

  __device__ void begin(const Segment& segment) {
    keys_ = segment.keys;
    k_.begin(call_.k, segment.kv_head, CopyMap<kHeadDim>::column());
    v_.begin(call_.v, segment.kv_head, CopyMap<kVHeadDim>::column());
    if (contiguous_) {
      const std::int64_t row = call_.cache_rows.data == nullptr
                                   ? segment.sequence
                                   : load_index(call_.cache_rows, segment.sequence);
      k_.head += row * k_.page_stride;
      v_.head += row * v_.page_stride;
    } else {
      table_ = call_.layout == KvLayout::kPagedDense
                   ? segment.sequence * call_.page_table.row_stride
                   : load_index(call_.page_indptr, segment.sequence);
    }
  }

  /// The page of this lane's key of the chunk from `first_key` on. To be asked for well
  /// before the chunk is copied.
  [[nodiscard]] __device__ int page_of_chunk(int first_key) const {
    return page_of(first_key, first_key + lane_id() % kChunk);
  }

  /// The pages of 64 keys: where a chunk lies in one page, each chunk's, in the first four
  /// lanes; else those of a lane's two keys, 32 apart.
  struct StagePages {
    int first = 0;
    int second = 0;
  };
  /// To be asked for well before the keys from `first_key` on are copied.
  [[nodiscard]] __device__ StagePages pages_of(int first_key) const {
    if (contiguous_) return {};
    if (one_page_) {
      const int chunk = lane_id() % (kStageKeys / kChunk);
      return {page_of(first_key, first_key + chunk * kChunk), 0};
    }
    return {page_of(first_key, first_key + lane_id()),
            page_of(first_key, first_key + kLanes + lane_id())};
  }

  /// Starts copying the 64 keys from `first_key` on, a multiple of 16, as far as they are the
  /// segment's; those of a chunk with none are left alone.
  __device__ void copy_stage(std::byte* k, std::byte* v, int first_key,
                             const StagePages& pages) const {
    if (rows_apart() && first_key >= keys_.begin && first_key + kStageKeys <= keys_.end) {
      copy_whole_stage(shared_address(k), shared_address(v), first_key, pages.first);
      return;
    }
#pragma unroll 1
    for (int i = 0; i < kStageKeys / kChunk; ++i) {
      const int first = first_key + i * kChunk;
      if (first >= keys_.end) break;
      int page = shuffle(pages.first, one_page_ ? i : i * kChunk % kLanes + lane_id() % kChunk);
      if (!one_page_ && i * kChunk >= kLanes) {
        page = shuffle(pages.second, i * kChunk % kLanes + lane_id() % kChunk);
      }
      copy({k + i * TileMemory<kChunk, kHeadDim>::kBytes,
            v + i * TileMemory<kChunk, kVHeadDim>::kBytes},
           first, page);
    }
  }

  /// Starts copying the chunk from `first_key` on, which holds a key of the segment.
  __device__ void copy(const ChunkMemory& to, int first_key, int page) const {
    const Range32 valid{keys_.begin - first_key, keys_.end - first_key};
    if (rows_apart() && valid.begin <= 0 && valid.end >= kChunk) {
      copy_apart(shared_address(to.k), shared_address(to.v), offset_in(k_, first_key, page),
                 offset_in(v_, first_key, page));
    } else {
      copy_one_by_one(to, first_key, page, valid);
    }
  }

 private:
  /// K or V of a KV head, in bytes.
  struct Rows {
    std::int64_t page_stride;
    std::int64_t slot_stride;
    const std::byte* head = nullptr;  // this lane's column of the head's first key (contiguous:
                                      // of the cache row)
    __device__ explicit Rows(const CacheTensor& cache)
        : page_stride(cache.page_stride * 2), slot_stride(cache.slot_stride * 2) {}
    __device__ void begin(const CacheTensor& cache, int kv_head, int column) {
      head = static_cast<const std::byte*>(cache.data) + kv_head * cache.head_stride * 2 + column;
    }
  };

  /// Whether the 16 rows of a chunk are a stride apart, for copies of 16 bytes.
  [[nodiscard]] __device__ bool rows_apart() const { return one_page_ && call_.copies_aligned; }

  /// The page of `key`, or of the nearest one that is the segment's; 0 if `first_key` is past it.
  [[nodiscard]] __device__ int page_of(int first_key, int key) const {
    if (contiguous_ || first_key >= keys_.end) return 0;
    const int nearest = max(keys_.begin, min(key, keys_.end - 1));
    return load_index(call_.page_table, table_ + nearest / call_.page_size);
  }

  /// Bytes before `key`, in its page.
  [[nodiscard]] __device__ std::int64_t offset_in(const Rows& rows, int key, int page) const {
    if (contiguous_) return key * rows.slot_stride;
    return page * rows.page_stride + key % call_.page_size * rows.slot_stride;
  }

  __device__ void copy_apart(unsigned k, unsigned v, std::int64_t k_offset,
                             std::int64_t v_offset) const {
    using KMap = CopyMap<kHeadDim>;
    using VMap = CopyMap<kVHeadDim>;
    KMap::copy(async_, k, k_.head + k_offset + KMap::row() * k_.slot_stride,
               KMap::kRowStep * k_.slot_stride);
    VMap::copy(async_, v, v_.head + v_offset + VMap::row() * v_.slot_stride,
               VMap::kRowStep * v_.slot_stride);
  }

  /// A loop of few instructions: it is what the copy warps spend their time with.
  __device__ void copy_whole_stage(unsigned k, unsigned v, int first_key, int pages) const {
    std::int64_t k_offset = offset_in(k_, first_key, 0);
    std::int64_t v_offset = offset_in(v_, first_key, 0);
#pragma unroll 1
    for (int i = 0; i < kStageKeys / kChunk; ++i) {
      if (!contiguous_) {
        const int page = shuffle(pages, i);
        k_offset = offset_in(k_, first_key + i * kChunk, page);
        v_offset = offset_in(v_, first_key + i * kChunk, page);
      }
      copy_apart(k, v, k_offset, v_offset);
      k_offset += kChunk * k_.slot_stride;
      v_offset += kChunk * v_.slot_stride;
      k += TileMemory<kChunk, kHeadDim>::kBytes;
      v += TileMemory<kChunk, kVHeadDim>::kBytes;
    }
  }

  /// Every key by itself: in a page of its own, past the segment, or where no 16-byte copy
  /// may touch. The lanes tell each other where the keys lie.
  __device__ void copy_one_by_one(const ChunkMemory& to, int first_key, int page,
                                  Range32 valid) const {
    const int row = lane_id() % kChunk;
    const int key = max(keys_.begin, min(first_key + row, keys_.end - 1));
    const std::int64_t k = offset_in(k_, key, page);
    const std::int64_t v = offset_in(v_, key, page);
    if (call_.copies_aligned) {
      CopyMap<kHeadDim>::copy_rows(
          async_, shared_address(to.k), [&](int r) { return k_.head + shuffle(k, r); }, valid);
      CopyMap<kVHeadDim>::copy_rows(
          async_, shared_address(to.v), [&](int r) { return v_.head + shuffle(v, r); }, valid);
      return;
    }
    const bool is_valid = row >= valid.begin && row < valid.end;
    const auto row_at = [](const Rows& rows, std::int64_t offset, int column) {
      return reinterpret_cast<const Element*>(rows.head - column + offset);
    };
    if (lane_id() < kChunk) {
      copy_unaligned_row<Element, kHeadDim>(to.k, row_at(k_, k, CopyMap<kHeadDim>::column()), row,
                                            is_valid);
    } else {
      copy_unaligned_row<Element, kVHeadDim>(to.v, row_at(v_, v, CopyMap<kVHeadDim>::column()), row,
                                             is_valid);
    }
  }

  const Call& call_;
  AsyncCopy async_;
  bool contiguous_;
  bool one_page_;
  Rows k_;
  Rows v_;
  Range32 keys_{};          // of the segment
  std::int64_t table_ = 0;  // entries before the sequence's first page
};

}  // namespace leanattn::cuda
