// Where keys lie, and how a warp brings 16 of them into shared memory.
#pragma once

#include "cuda/cursor.cuh"
#include "cuda/tile_memory.cuh"

namespace leanattn::cuda {

/// The rows of one KV head of one sequence.
class KeyRows {
 public:
  KeyRows() = default;
  __device__ KeyRows(const Call& call, int sequence, int kv_head)
      : k_(kv_head * call.k.head_stride), v_(kv_head * call.v.head_stride) {
    if (call.layout == KvLayout::kContiguous) {
      const std::int64_t row =
          call.cache_rows.data == nullptr ? sequence : load_index(call.cache_rows, sequence);
      k_ += row * call.k.page_stride;
      v_ += row * call.v.page_stride;
    } else if (call.layout == KvLayout::kPagedDense) {
      table_ = sequence * call.page_table.row_stride;
    } else {
      table_ = load_index(call.page_indptr, sequence);
    }
  }

  /// The page of `key`; 0 in a contiguous cache.
  [[nodiscard]] __device__ int page_of(const Call& call, int key) const {
    if (call.layout == KvLayout::kContiguous) return 0;
    return load_index(call.page_table, table_ + key / call.page_size);
  }
  /// Offsets in elements of a key in that page.
  [[nodiscard]] __device__ std::int64_t k_offset(const Call& call, int page, int key) const {
    return k_ + offset(call, call.k, page, key);
  }
  [[nodiscard]] __device__ std::int64_t v_offset(const Call& call, int page, int key) const {
    return v_ + offset(call, call.v, page, key);
  }

 private:
  [[nodiscard]] static __device__ std::int64_t offset(const Call& call, const CacheTensor& cache,
                                                      int page, int key) {
    if (call.layout == KvLayout::kContiguous) return key * cache.slot_stride;
    return page * cache.page_stride + key % call.page_size * cache.slot_stride;
  }

  std::int64_t k_ = 0;      // elements before the head (contiguous: and the cache row)
  std::int64_t v_ = 0;
  std::int64_t table_ = 0;  // entries before the sequence's first page
};

/// Copies elements one by one, for rows that no 16-byte copy may touch.
template <class Element>
__device__ void copy_piece_by_elements(std::byte* to, const Element* from, bool valid) {
  auto* elements = reinterpret_cast<Element*>(to);
#pragma unroll
  for (int i = 0; i < 8; ++i) elements[i] = valid ? from[i] : Element(0.0f);
}

/// Starts copying 16 rows into `tile`: row i from `base` + row_offset(i). Rows outside
/// `valid` become zero and are not read.
template <class Element, int kDim, class RowOffset>
__device__ void copy_key_rows(std::byte* tile, const Element* base, const RowOffset& row_offset,
                              Range32 valid, bool aligned) {
  using Memory = TileMemory<kChunk, kDim>;
  using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>;
#pragma unroll
  for (int i = 0; i < kChunk * Memory::kPieces / kLanes; ++i) {
    const int index = i * kLanes + lane_id();
    const int row = index / Memory::kPieces;
    const int piece = index % Memory::kPieces;
    const bool is_valid = row >= valid.begin && row < valid.end;
    const int read_row = max(valid.begin, min(row, valid.end - 1));
    const Element* from = base + row_offset(read_row) + piece * 8;
    std::byte* to = tile + Memory::offset(row, piece);
    if (aligned) {
      Copy::copy(*reinterpret_cast<const cute::uint128_t*>(from),
                 *reinterpret_cast<cute::uint128_t*>(to), is_valid);
    } else {
      copy_piece_by_elements(to, from, is_valid);
    }
  }
}

/// Brings a warp's chunks of 16 keys, of all segments of the worker one after the other,
/// into its own ring of stages, as far ahead as the ring allows.
template <class Element, int kHeadDim, int kVHeadDim>
class ChunkLoader {
 public:
  static constexpr int kKBytes = kChunk * kHeadDim * 2;
  static constexpr int kStageBytes = kKBytes + kChunk * kVHeadDim * 2;

  /// The warp takes every `step`-th chunk, from the `first`-th on.
  __device__ ChunkLoader(const Call& call, const Cursor& cursor, int first, int step)
      : call_(call), cursor_(cursor), first_(first), step_(step) {
    next_segment();
  }

  /// Starts copying the next chunk into `stage`, if there is one. A stage is one group of
  /// copies, also if it stays empty.
  __device__ void issue(std::byte* stage) {
    if (key_ < keys_.end) {
      copy(stage);
      key_ += step_ * kChunk;
      if (key_ < keys_.end) {
        look_up_page();
      } else {
        next_segment();
      }
    }
    cute::cp_async_fence();
  }

 private:
  __device__ void next_segment() {
    while (key_ >= keys_.end && !cursor_.done()) {
      const Segment segment = cursor_.next();
      keys_ = segment.keys;
      key_ = keys_.begin / kChunk * kChunk + first_ * kChunk;
      if (key_ < keys_.end) {
        rows_ = KeyRows(call_, segment.sequence, segment.kv_head);
        look_up_page();
      }
    }
  }

  /// The page of this lane's key of the chunk, loaded a chunk before it is needed.
  __device__ void look_up_page() { page_ = rows_.page_of(call_, lane_key()); }

  [[nodiscard]] __device__ int lane_key() const {
    return max(keys_.begin, min(key_ + lane_id() % kChunk, keys_.end - 1));
  }

  __device__ void copy(std::byte* stage) const {
    const auto* k = static_cast<const Element*>(call_.k.data);
    const auto* v = static_cast<const Element*>(call_.v.data);
    const Range32 valid{max(0, keys_.begin - key_), min(kChunk, keys_.end - key_)};
    if (call_.layout == KvLayout::kContiguous || call_.page_size % kChunk == 0) {
      // All 16 keys in one page: rows are a stride apart.
      const std::int64_t k_offset = rows_.k_offset(call_, page_, key_);
      const std::int64_t v_offset = rows_.v_offset(call_, page_, key_);
      copy_key_rows<Element, kHeadDim>(
          stage, k + k_offset, [&](int row) { return row * call_.k.slot_stride; }, valid,
          call_.copies_aligned);
      copy_key_rows<Element, kVHeadDim>(
          stage + kKBytes, v + v_offset, [&](int row) { return row * call_.v.slot_stride; }, valid,
          call_.copies_aligned);
    } else {
      const std::int64_t k_offset = rows_.k_offset(call_, page_, lane_key());
      const std::int64_t v_offset = rows_.v_offset(call_, page_, lane_key());
      copy_key_rows<Element, kHeadDim>(
          stage, k, [&](int row) { return shuffle(k_offset, row); }, valid, call_.copies_aligned);
      copy_key_rows<Element, kVHeadDim>(
          stage + kKBytes, v, [&](int row) { return shuffle(v_offset, row); }, valid,
          call_.copies_aligned);
    }
  }

  const Call& call_;
  Cursor cursor_;
  KeyRows rows_;
  Range32 keys_{};  // of the segment at hand
  int key_ = 0;     // first of the next chunk
  int page_ = 0;
  int first_;
  int step_;
};

}  // namespace leanattn::cuda
