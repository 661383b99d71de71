// Checks of one tensor or index view at a time, shared by every public call.
//
// They cost a few comparisons where all is well: text is made only on failure.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "leanattn/error.h"
#include "leanattn/tensor.h"

namespace leanattn::core {

[[nodiscard]] inline bool is_floating(ElementType type) { return type != ElementType::kBool; }

/// a·b of two counts, as large as a count can be where it does not fit.
[[nodiscard]] inline std::int64_t product(std::int64_t a, std::int64_t b) {
  if (a <= 0 || b <= 0) return 0;
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return a > most / b ? most : a * b;
}

/// "[2, 1, 8, 64]"
[[nodiscard]] inline std::string text_of(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

/// "host memory" or "memory of device 0"
[[nodiscard]] inline std::string text_of(Device device) {
  return device.kind == Device::Kind::kHost ? "host memory"
                                            : concat("memory of device ", device.index);
}

template <int kRank, class Pointer>
void check_shape(std::string_view name, const TensorView<kRank, Pointer>& view,
                 const std::type_identity_t<std::array<std::int64_t, kRank>>& expected) {
  if (view.shape != expected) [[unlikely]] {
    throw InvalidArgument(
        concat(name, " has shape ", text_of(view.shape), "; it must be ", text_of(expected)));
  }
}

inline void check_type(std::string_view name, ElementType type, ElementType expected) {
  check<TypeMismatch>(type == expected, name, " is ", name_of(type), "; it must be ",
                      name_of(expected));
}

inline void check_floating(std::string_view name, ElementType type) {
  check<TypeMismatch>(is_floating(type), name, " is ", name_of(type),
                      "; it must be f32, f16 or bf16");
}

inline void check_device(std::string_view name, Device device, Device expected) {
  if (device != expected) [[unlikely]] {
    throw TypeMismatch(
        concat(name, " lies in ", text_of(device), "; it must lie in ", text_of(expected)));
  }
}

template <int kRank, class Pointer>
[[nodiscard]] bool is_empty(const TensorView<kRank, Pointer>& view) {
  for (const std::int64_t extent : view.shape) {
    if (extent == 0) return true;
  }
  return false;
}

/// The last dimension has stride 1; where nobody steps along it, it may have any.
template <int kRank, class Pointer>
void check_rows_contiguous(std::string_view name, const TensorView<kRank, Pointer>& view) {
  check(view.strides[kRank - 1] == 1 || view.shape[kRank - 1] <= 1 || is_empty(view), name,
        " has stride ", view.strides[kRank - 1], " in its last dimension; it must be 1");
}

/// A tensor that is written has a place for every element.
template <int kRank>
void check_writable(std::string_view name, const MutableTensorView<kRank>& view) {
  if (is_empty(view)) return;
  for (int i = 0; i < kRank; ++i) {
    check(view.strides[i] != 0 || view.shape[i] <= 1, name, " has stride 0 in dimension ", i,
          "; it must be another, because ", name, " is written");
  }
}

/// `bytes` is a power of two.
inline void check_alignment(std::string_view name, const void* data, std::int64_t bytes) {
  check((std::bit_cast<std::uintptr_t>(data) & static_cast<std::uintptr_t>(bytes - 1)) == 0, name,
        " lies at address ", data, "; it must be a multiple of ", bytes,
        ", the bytes of an element");
}

/// Extents are not negative, and there is memory for more than none.
template <int kRank, class Pointer>
void check_data(std::string_view name, const TensorView<kRank, Pointer>& view) {
  for (int i = 0; i < kRank; ++i) {
    check(view.shape[i] >= 0, name, " has extent ", view.shape[i], " in dimension ", i,
          "; it must be at least 0");
  }
  if (!view.given() && !is_empty(view)) [[unlikely]] {
    throw InvalidArgument(
        concat(name, " has no memory; with shape ", text_of(view.shape), " it must be given"));
  }
  check_alignment(name, view.data, size_of(view.type));
}

/// `view` is a matrix of rows × columns in memory of `device`.
inline void check_index_table(std::string_view name, const IndexView& view, std::int64_t rows,
                              std::int64_t columns, Device device) {
  check(view.rows == rows && view.columns == columns, name, " is ", view.rows, " by ", view.columns,
        "; it must be ", rows, " by ", columns);
  check(view.given() || rows == 0 || columns == 0, name, " has no memory; its ", rows, " by ",
        columns, " entries must be given");
  check_device(name, view.device, device);
  check_alignment(name, view.data, view.type == IndexType::kInt32 ? 4 : 8);
}

/// `view` is a vector of `size` in memory of `device`; an empty one may be left out.
inline void check_index_vector(std::string_view name, const IndexView& view, std::int64_t size,
                               Device device) {
  if (size == 0 && !view.given()) return;
  check_index_table(name, view, 1, size, device);
}

/// `offsets` [batch + 1] rise from 0 to `total`. Host memory.
inline void check_offsets(std::string_view name, const IndexView& offsets, std::int64_t total) {
  const std::int64_t last = offsets.columns - 1;
  check(offsets[0] == 0, name, "[0] is ", offsets[0], "; it must be 0");
  for (std::int64_t b = 0; b < last; ++b) {
    check(offsets[b + 1] >= offsets[b], name, "[", b + 1, "] is ", offsets[b + 1],
          "; it must be at least ", name, "[", b, "], which is ", offsets[b]);
  }
  check(offsets[last] == total, name, "[", last, "] is ", offsets[last], "; it must be ", total,
        ", the number of rows it divides");
}

}  // namespace leanattn::core
