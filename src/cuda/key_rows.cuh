// How a warp brings rows of keys and values into shared memory.
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

  /// Calls take(step, row) for this lane's rows.
  template <class Take>
  static __device__ void for_each_step(const Take& take) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) take(step, row() + step * kRowStep);
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

/// Entries of a paged cache's table before the first page of the segment's sequence.
[[nodiscard]] __device__ inline std::int64_t page_table_row(const Call& call,
                                                            const Segment& segment) {
  return call.layout == KvLayout::kPagedDense ? segment.sequence * call.page_table.row_stride
                                              : load_index(call.page_indptr, segment.sequence);
}

/// The nearest of a segment's keys.
[[nodiscard]] __device__ inline int nearest_of(const Range32& keys, int key) {
  return max(keys.begin, min(key, keys.end - 1));
}

/// The row of a contiguous cache that is the segment's.
[[nodiscard]] __device__ inline std::int64_t cache_row(const Call& call, const Segment& segment) {
  return call.cache_rows.data == nullptr ? segment.sequence
                                         : load_index(call.cache_rows, segment.sequence);
}

/// Where a key's rows of K and V lie: bytes after the KV head's first.
struct KeyOffsets {
  std::int64_t k = 0;
  std::int64_t v = 0;

  /// Themselves, which all lanes have the same of: as what came out of a shuffle they stay in
  /// registers, and are not multiplied out again wherever they are added.
  [[nodiscard]] __device__ KeyOffsets same_in_all() const { return {shuffle(k, 0), shuffle(v, 0)}; }
};

/// Where a lane's first rows of a chunk lie, in device memory.
struct ChunkPointers {
  const std::byte* k = nullptr;
  const std::byte* v = nullptr;

  __device__ void advance(const KeyOffsets& offsets) {
    k += offsets.k;
    v += offsets.v;
  }
};

/// KeyOffsets in pieces of 16 bytes, where `Call::pages_in_pieces`.
struct KeyPieces {
  static constexpr int kBytes = 16;
  unsigned k = 0;
  unsigned v = 0;

  [[nodiscard]] __device__ KeyOffsets offsets() const {
    return {std::int64_t{k} * kBytes, std::int64_t{v} * kBytes};
  }
};

/// Copies chunks of 16 keys, with their values, of one segment after the other. With a whole
/// warp.
template <int kHeadDimOf, int kVHeadDimOf, Reuse kReuse>
class KeyCopier {
 public:
  static constexpr int kHeadDim = kHeadDimOf;
  static constexpr int kVHeadDim = kVHeadDimOf;

  __device__ explicit KeyCopier(const Call& call) : call_(call), k_(call.k), v_(call.v) {}

  /// `row` is that of a contiguous cache; of a paged one it is 0.
  __device__ void begin(const Segment& segment, std::int64_t row) {
    keys_ = segment.keys;
    k_.begin(call_.k, segment.kv_head, row);
    v_.begin(call_.v, segment.kv_head, row);
  }

  /// Whether keys [first, first + count) are all the segment's, for copies of 16 bytes: then
  /// `copy_apart` or `copy_gathered` takes their chunks.
  [[nodiscard]] __device__ bool is_whole(int first, int count) const {
    return call_.copies_aligned && keys_.begin <= first && first + count <= keys_.end;
  }

  /// Where `key` lies, whose page is `page`.
  [[nodiscard]] __device__ KeyOffsets paged_offsets(int key, int page) const {
    const int slot = key % call_.page_size;
    return {offset_in(call_.k, page, slot), offset_in(call_.v, page, slot)};
  }
  [[nodiscard]] __device__ KeyOffsets contiguous_offsets(int key) const {
    return {offset_in(call_.k, 0, key), offset_in(call_.v, 0, key)};
  }

  /// The chunk whose first key is at `first`.
  [[nodiscard]] __device__ ChunkPointers pointers(const KeyOffsets& first) const {
    return {k_.first_row() + first.k, v_.first_row() + first.v};
  }
  /// Starts copying a chunk as `is_whole` says, its keys a stride apart.
  __device__ void copy_apart(const ChunkMemory& to, const ChunkPointers& from) const {
    KMap::copy(to.k, from.k, k_.row_step);
    VMap::copy(to.v, from.v, v_.row_step);
  }
  /// The same of keys anywhere: place_of(r) is where key r of the chunk lies.
  template <class PlaceOf>
  __device__ void copy_gathered(const ChunkMemory& to, const PlaceOf& place_of) const {
    KeyPieces places[KMap::kSteps];  // all loaded before the first is used
    KMap::for_each_step([&](int step, int row) { places[step] = place_of(row); });
    KMap::for_each_step([&](int step, int) { k_.copy_step(to.k, step, places[step].k); });
    if constexpr (kHeadDim == kVHeadDim) {
      KMap::for_each_step([&](int step, int) { v_.copy_step(to.v, step, places[step].v); });
    } else {
      VMap::for_each_step([&](int step, int row) { v_.copy_step(to.v, step, place_of(row).v); });
    }
  }

  /// This lane's key of a chunk, or the nearest one that is the segment's.
  [[nodiscard]] __device__ int lane_key(int first_key) const {
    return nearest_of(keys_, first_key + lane_id() % kChunk);
  }
  /// Starts copying the chunk from `first_key` on, which holds a key of the segment: every key
  /// by itself, in a page of its own, past the segment, or where no 16-byte copy may touch.
  /// `lane` is where this lane's key lies; the lanes tell each other.
  __device__ void copy(const ChunkMemory& to, int first_key, const KeyOffsets& lane) const {
    const Range32 valid{keys_.begin - first_key, keys_.end - first_key};
    if (call_.copies_aligned) {
      KMap::copy_rows(
          to.k, [&](int row) { return k_.column + shuffle(lane.k, row); }, valid);
      VMap::copy_rows(
          to.v, [&](int row) { return v_.column + shuffle(lane.v, row); }, valid);
      return;
    }
    const int row = lane_id() % kChunk;
    const bool is_valid = row >= valid.begin && row < valid.end;
    if (lane_id() < kChunk) {
      copy_unaligned_row<kHeadDim>(
          to.k, reinterpret_cast<const std::uint16_t*>(k_.first_key() + lane.k), row, is_valid);
    } else {
      copy_unaligned_row<kVHeadDim>(
          to.v, reinterpret_cast<const std::uint16_t*>(v_.first_key() + lane.v), row, is_valid);
    }
  }

 private:
  using KMap = CopyMap<kHeadDim, kReuse>;
  using VMap = CopyMap<kVHeadDim, kReuse>;

  /// K or V of a KV head; a lane's column is that of its piece of a row's first panel.
  template <class Map>
  struct Rows {
    std::int64_t lane;                  // bytes from a chunk's first row to this lane's first
    std::int64_t row_step;              // and from a row of this lane's to its next
    const std::byte* column = nullptr;  // the head's first key (contiguous: of the cache row)

    __device__ explicit Rows(const CacheTensor& cache)
        : lane(Map::row() * cache.slot_stride * 2),
          row_step(Map::kRowStep * cache.slot_stride * 2) {
      asm volatile("" : "+l"(lane), "+l"(row_step));  // while lengths are on their way
    }
    __device__ void begin(const CacheTensor& cache, int kv_head, std::int64_t row) {
      column = static_cast<const std::byte*>(cache.data) +
               (kv_head * cache.head_stride + row * cache.page_stride) * 2 + Map::column();
      asm volatile("" : "+l"(column));  // one sum, not one for every row
    }
    [[nodiscard]] __device__ const std::byte* first_key() const { return column - Map::column(); }
    /// And where this lane's first row of a chunk would lie that begins there.
    [[nodiscard]] __device__ const std::byte* first_row() const { return column + lane; }
    /// The rows of a step, which begin at `piece`.
    __device__ void copy_step(unsigned to, int step, unsigned piece) const {
      Map::copy_row(to, column + std::uint64_t{piece} * KeyPieces::kBytes, step);
    }
  };

  /// Bytes before a key, in a page.
  [[nodiscard]] static __device__ std::int64_t offset_in(const CacheTensor& cache, int page,
                                                         int slot) {
    return (page * cache.page_stride + slot * cache.slot_stride) * 2;
  }

  const Call& call_;
  Rows<KMap> k_;
  Rows<VMap> v_;
  Range32 keys_{};  // of the segment
};

}  // namespace leanattn::cuda
