// Non-owning views of the caller's tensors, shaped as in DLPack.
//
// Strides count elements, not bytes. Shapes, strides and offsets are 64-bit.
// The last dimension of q, k, v and out is contiguous (stride 1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace leanattn {

enum class ElementType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kBool };

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t size_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat32: return 4;
    case ElementType::kFloat16:
    case ElementType::kBFloat16: return 2;
    case ElementType::kBool: return 1;
  }
  return 0;
}

/// "f32", "f16", "bf16" or "bool".
[[nodiscard]] constexpr std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat32: return "f32";
    case ElementType::kFloat16: return "f16";
    case ElementType::kBFloat16: return "bf16";
    case ElementType::kBool: return "bool";
  }
  return "?";
}

/// Where memory lives: kHost can be read by this process's CPU threads, kDevice
/// only by an accelerator.
struct Device {
  enum class Kind : std::uint8_t { kHost, kDevice };
  Kind kind = Kind::kHost;
  std::int32_t index = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

/// A strided view of `kRank` dimensions. A view without data is "not given";
/// optional arguments are left that way.
template <int kRank, class Pointer = const void*>
struct TensorView {
  Pointer data = nullptr;
  ElementType type = ElementType::kFloat32;
  std::array<std::int64_t, kRank> shape{};
  std::array<std::int64_t, kRank> strides{};
  Device device{};

  [[nodiscard]] bool given() const { return data != nullptr; }

  /// Offset in elements of the element (or row) at `indices`.
  template <class... Index>
  [[nodiscard]] std::int64_t offset(Index... indices) const {
    static_assert(sizeof...(Index) <= kRank);
    std::int64_t sum = 0;
    std::size_t dimension = 0;
    ((sum += static_cast<std::int64_t>(indices) * strides[dimension++]), ...);
    return sum;
  }
};

template <int kRank>
using MutableTensorView = TensorView<kRank, void*>;

/// A row-major view of `shape` over `data`.
template <int kRank, class Pointer>
[[nodiscard]] TensorView<kRank, Pointer> contiguous(Pointer data, ElementType type,
                                                    std::array<std::int64_t, kRank> shape) {
  TensorView<kRank, Pointer> view{data, type, shape, {}, {}};
  std::int64_t stride = 1;
  for (int i = kRank - 1; i >= 0; --i) {
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}

/// A read-only view of a mutable one.
template <int kRank>
[[nodiscard]] TensorView<kRank> as_const(const MutableTensorView<kRank>& view) {
  return {view.data, view.type, view.shape, view.strides, view.device};
}

enum class IndexType : std::uint8_t { kInt32, kInt64 };

/// Bytes of one index.
[[nodiscard]] constexpr std::int64_t size_of(IndexType type) {
  return type == IndexType::kInt32 ? 4 : 8;
}

/// A matrix of int32 or int64: lengths, offsets and page tables. A vector is a
/// matrix of one row.
struct IndexView {
  const void* data = nullptr;
  IndexType type = IndexType::kInt32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t row_stride = 0;  // elements
  Device device{};

  [[nodiscard]] bool given() const { return data != nullptr; }

  /// The value at (row, column); host memory only.
  [[nodiscard]] std::int64_t at(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * row_stride + column;
    return type == IndexType::kInt32 ? static_cast<const std::int32_t*>(data)[i]
                                     : static_cast<const std::int64_t*>(data)[i];
  }
  [[nodiscard]] std::int64_t operator[](std::int64_t column) const { return at(0, column); }
};

[[nodiscard]] inline IndexView indices(const std::int32_t* data, std::int64_t size) {
  return {data, IndexType::kInt32, 1, size, size, {}};
}
[[nodiscard]] inline IndexView indices(const std::int64_t* data, std::int64_t size) {
  return {data, IndexType::kInt64, 1, size, size, {}};
}
[[nodiscard]] inline IndexView index_table(const std::int32_t* data, std::int64_t rows,
                                           std::int64_t columns) {
  return {data, IndexType::kInt32, rows, columns, columns, {}};
}
[[nodiscard]] inline IndexView index_table(const std::int64_t* data, std::int64_t rows,
                                           std::int64_t columns) {
  return {data, IndexType::kInt64, rows, columns, columns, {}};
}

/// How the keys of a sequence are found in memory.
enum class KvLayout : std::uint8_t {
  kContiguous,  // row b of the cache holds sequence b
  kPagedDense,  // a page table of one row per sequence
  kPagedCsr,    // page ids of all sequences end to end, with offsets
};

[[nodiscard]] constexpr std::string_view name_of(KvLayout layout) {
  switch (layout) {
    case KvLayout::kContiguous: return "contiguous";
    case KvLayout::kPagedDense: return "paged (dense table)";
    case KvLayout::kPagedCsr: return "paged (CSR)";
  }
  return "?";
}

/// A key-value cache. NHD and HND, and one buffer holding K and V interleaved,
/// are stride patterns of `k` and `v`.
///
/// contiguous: k [cache_rows, capacity, kv_heads, head_dim]
///             v [cache_rows, capacity, kv_heads, v_head_dim]
/// paged:      k [num_pages, page_size, kv_heads, head_dim]
///             v [num_pages, page_size, kv_heads, v_head_dim]
template <class Pointer>
struct BasicKvView {
  TensorView<4, Pointer> k;
  TensorView<4, Pointer> v;

  KvLayout layout = KvLayout::kContiguous;
  IndexView page_table;   // kPagedDense: [batch, width] page ids
  IndexView page_ids;     // kPagedCsr: [num_ids] page ids
  IndexView page_indptr;  // kPagedCsr: [batch + 1]; sequence b owns ids [b], [b + 1)
  IndexView cache_rows;   // kContiguous, optional: [batch] the cache row of each sequence

  /// Keys a page holds; of a contiguous cache, the capacity of a row.
  [[nodiscard]] std::int64_t page_size() const { return k.shape[1]; }
};

using KvView = BasicKvView<const void*>;
using MutableKvView = BasicKvView<void*>;

/// A read-only view of a mutable cache.
[[nodiscard]] inline KvView as_const(const MutableKvView& kv) {
  return {as_const(kv.k), as_const(kv.v), kv.layout,    kv.page_table,
          kv.page_ids,    kv.page_indptr, kv.cache_rows};
}

}  // namespace leanattn
