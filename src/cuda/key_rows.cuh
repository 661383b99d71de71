// Where keys lie, and how a warp brings rows of them into shared memory.
#pragma once

#include "cuda/async_copy.cuh"
#include "cuda/cursor.cuh"
#include "cuda/tile_memory.cuh"

namespace leanattn::cuda {

/// Copies one lane's row element by element: for rows that no 16-byte copy may touch. `tile`
/// is an address in shared memory.
template <int kDim>
__device__ __noinline__ void copy_unaligned_row(unsigned tile, const std::uint16_t* from, int row,
                                                bool valid) {
#pragma unroll 1
  for (int d = 0; d < kDim; ++d) {
    store_shared_half(tile + TileMemory<kChunk, kDim>::offset(row, d / 8) + d % 8 * 2,
                      valid ? from[d] : std::uint16_t{0});
  }
}

/// How the lanes of a warp share the copying of 16 rows: a lane has one piece of every panel
/// and every kRowStep-th row.
template <int kDim, Reuse kReuse>
struct CopyMap {
  using Memory = TileMemory<kChunk, kDim>;
  using Copy = AsyncCopy<kReuse>;
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
  static __device__ void copy(unsigned tile, const std::byte* from, std::int64_t stride) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      copy_row(tile, from, step);
      from += stride;
    }
  }
  /// Starts those of a step's rows, each from its lanes' `from`.
  static __device__ void copy_row(unsigned tile, const std::byte* from, int step) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      Copy::copy(piece(tile, panel, step), from + panel * kPanelRowBytes);
    }
  }

  /// As `copy` for rows anywhere: row_pointer(r) is where row r begins, at this lane's column
  /// of the first panel. Rows not `valid` become zero and are not read.
  template <class RowPointer>
  static __device__ void copy_rows(unsigned tile, const RowPointer& row_pointer, Range32 valid) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int r = row() + step * kRowStep;
      const std::byte* from = row_pointer(max(valid.begin, min(r, valid.end - 1)));
      const bool is_valid = r >= valid.begin && r < valid.end;
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        Copy::copy_or_clear(piece(tile, panel, step), from + panel * kPanelRowBytes, is_valid);
      }
    }
  }
};

/// Copies chunks of 16 keys, with their values, of one segment after the other. With a whole
/// warp.
template <int kHeadDim, int kVHeadDim, Reuse kReuse>
class KeyCopier {
 public:
  __device__ explicit KeyCopier(const Call& call)
      : call_(call),
        contiguous_(call.layout == KvLayout::kContiguous),
        one_page_(contiguous_ || call.page_size.value() % kChunk == 0),
        apart_(one_page_ && call.copies_aligned),
        k_(call.k),
        v_(call.v) {}

  __device__ void begin(const Segment& segment) {
    keys_ = segment.keys;
    std::int64_t row = 0;
    if (!contiguous_) {
      table_ = call_.layout == KvLayout::kPagedDense
                   ? segment.sequence * call_.page_table.row_stride
                   : load_index(call_.page_indptr, segment.sequence);
    } else {
      row = call_.cache_rows.data == nullptr ? segment.sequence
                                             : load_index(call_.cache_rows, segment.sequence);
    }
    k_.begin(call_.k, segment.kv_head, row);
    v_.begin(call_.v, segment.kv_head, row);
  }

  [[nodiscard]] __device__ bool contiguous() const { return contiguous_; }
  /// Whether keys [first, first + count) are all the segment's, and every chunk of them lies in
  /// one page, for copies of 16 bytes: then `copy_whole` takes them.
  [[nodiscard]] __device__ bool is_whole(int first, int count) const {
    return apart_ && keys_.begin <= first && first + count <= keys_.end;
  }

  /// The page of this lane's key of the chunk from `first_key` on. To be asked for well
  /// before the chunk is copied.
  [[nodiscard]] __device__ int page_of(int first_key) const {
    if (contiguous_ || first_key >= keys_.end) return 0;
    return load_index(call_.page_table, table_ + lane_key(first_key) / call_.page_size);
  }

  /// As page_of for many chunks at once: loads the pages of the n-th chunk, whose keys begin at
  /// key_of(n), well before it is copied. Where a chunk lies in one page, every 32nd time the pages
  /// of 32 chunks, one a lane; else those of the keys of two chunks, two chunks ahead.
  template <class KeyOf>
  __device__ void look_up(const KeyOf& key_of, int n) {
    if (contiguous_) return;
    if (one_page_) {
      if (n % kLanes != 0) return;
      const int first_key = key_of(n + lane_id());
      if (first_key >= keys_.end) return;
      page_ = load_index(call_.page_table, table_ + max(first_key, keys_.begin) / call_.page_size);
    } else if (n % 2 == 0) {
      const int chunk = n + lane_id() / kChunk;
      page_ = n == 0 ? page_of(key_of(chunk)) : next_page_;
      next_page_ = page_of(key_of(chunk + 2));
    }
  }
  /// The page of this lane's key of the n-th chunk.
  [[nodiscard]] __device__ int page(int n) const {
    if (contiguous_) return 0;
    return shuffle(page_, one_page_ ? n % kLanes : n % 2 * kChunk + lane_id() % kChunk);
  }

  /// Starts copying a chunk as `is_whole` says, in pages or not.
  template <bool kPaged>
  __device__ void copy_whole(const ChunkMemory& to, int first_key, int page) const {
    k_.copy_apart(to.k, offset_in<kPaged>(k_, first_key, page));
    v_.copy_apart(to.v, offset_in<kPaged>(v_, first_key, page));
  }

  /// Whether the 16 keys from `first` on are all the segment's, in pages of fewer, and
  /// `copy_gathered` takes them.
  [[nodiscard]] __device__ bool is_gathered(int first) const {
    return call_.even_pages && call_.copies_aligned && keys_.begin <= first &&
           first + kChunk <= keys_.end;
  }
  /// Starts copying a chunk as `is_gathered` says. `page` is that of this lane's key.
  __device__ void copy_gathered(const ChunkMemory& to, int first_key, int page) const {
    const int key = first_key + lane_id() % kChunk;
    const int slot = key % call_.page_size;
    const auto row = static_cast<unsigned>(page * call_.page_size.value() + slot);
    k_.copy_rows(to.k, row);
    v_.copy_rows(to.v, row);
  }

  /// Starts copying the chunk from `first_key` on, which holds a key of the segment: every key
  /// by itself, in a page of its own, past the segment, or where no 16-byte copy may touch. The
  /// lanes tell each other where the keys lie.
  __device__ void copy(const ChunkMemory& to, int first_key, int page) const {
    const Range32 valid{keys_.begin - first_key, keys_.end - first_key};
    const int key = lane_key(first_key);
    const std::int64_t k =
        contiguous_ ? offset_in<false>(k_, key, page) : offset_in<true>(k_, key, page);
    const std::int64_t v =
        contiguous_ ? offset_in<false>(v_, key, page) : offset_in<true>(v_, key, page);
    if (call_.copies_aligned) {
      const std::byte* k_head = k_.head + KMap::column();
      const std::byte* v_head = v_.head + VMap::column();
      KMap::copy_rows(
          to.k, [&](int row) { return k_head + shuffle(k, row); }, valid);
      VMap::copy_rows(
          to.v, [&](int row) { return v_head + shuffle(v, row); }, valid);
      return;
    }
    const int row = lane_id() % kChunk;
    const bool is_valid = row >= valid.begin && row < valid.end;
    if (lane_id() < kChunk) {
      copy_unaligned_row<kHeadDim>(to.k, reinterpret_cast<const std::uint16_t*>(k_.head + k), row,
                                   is_valid);
    } else {
      copy_unaligned_row<kVHeadDim>(to.v, reinterpret_cast<const std::uint16_t*>(v_.head + v), row,
                                    is_valid);
    }
  }

 private:
  using KMap = CopyMap<kHeadDim, kReuse>;
  using VMap = CopyMap<kVHeadDim, kReuse>;

  /// K or V of a KV head, in bytes.
  template <class Map>
  struct Rows {
    std::int64_t page_stride;
    std::int64_t slot_stride;
    std::int64_t lane;                // from a chunk's first row to this lane's first piece
    std::int64_t row_step;            // and from a row of this lane's to its next
    const std::byte* head = nullptr;  // the head's first key (contiguous: of the cache row)

    __device__ explicit Rows(const CacheTensor& cache)
        : page_stride(cache.page_stride * 2),
          slot_stride(cache.slot_stride * 2),
          lane(Map::row() * slot_stride + Map::column()),
          row_step(Map::kRowStep * slot_stride) {}
    __device__ void begin(const CacheTensor& cache, int kv_head, std::int64_t row) {
      head = static_cast<const std::byte*>(cache.data) + kv_head * cache.head_stride * 2 +
             row * page_stride;
    }
    /// 16 rows of all pages, of which `row` is that of lane % 16.
    __device__ void copy_rows(unsigned to, unsigned row) const {
      const std::byte* first = head + Map::column();
      const auto stride = static_cast<unsigned>(slot_stride);
#pragma unroll
      for (int step = 0; step < Map::kSteps; ++step) {
        const std::uint64_t of_step = shuffle(row, Map::row() + step * Map::kRowStep);
        Map::copy_row(to, first + of_step * stride, step);
      }
    }
    /// 16 rows a stride apart, from `offset` on.
    __device__ void copy_apart(unsigned to, std::int64_t offset) const {
      Map::copy(to, head + offset + lane, row_step);
    }
  };

  /// This lane's key of a chunk, or the nearest one that is the segment's.
  [[nodiscard]] __device__ int lane_key(int first_key) const {
    return max(keys_.begin, min(first_key + lane_id() % kChunk, keys_.end - 1));
  }

  /// Bytes before `key`, in its page.
  template <bool kPaged, class Map>
  [[nodiscard]] __device__ std::int64_t offset_in(const Rows<Map>& rows, int key, int page) const {
    if constexpr (!kPaged) return key * rows.slot_stride;
    return page * rows.page_stride + key % call_.page_size * rows.slot_stride;
  }

  const Call& call_;
  bool contiguous_;
  bool one_page_;  // a chunk lies in one page
  bool apart_;     // and its rows can be copied by 16 bytes
  Rows<KMap> k_;
  Rows<VMap> v_;
  Range32 keys_{};          // of the segment
  std::int64_t table_ = 0;  // entries before the sequence's first page
  int page_ = 0;
  int next_page_ = 0;
};

}  // namespace leanattn::cuda
