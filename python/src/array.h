// Python's arrays as views of the library: numpy arrays, and whatever speaks DLPack or
// the buffer protocol. Nothing is copied, and no device is waited for. An Array keeps what
// it views alive; it is made and destroyed with the GIL held.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "leanattn/error.h"
#include "leanattn/tensor.h"
#include "stream.h"

namespace leanattn::python {

namespace nb = nanobind;

inline constexpr int kMaxRank = 5;

struct Array {
  nb::ndarray<nb::ro> owner;
  std::string_view name;  // of the argument, for messages; a literal
  void* data = nullptr;   // written only if it was imported to be
  nb::dlpack::dtype type{};
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};  // elements
  Device device{};
};

enum class Access : std::uint8_t { kRead, kWrite };

/// The array that `object` is; one in device memory is ready in `stream`, as far as its library
/// knows how to order that. Throws TypeMismatch if it is none, InvalidArgument if it is to be
/// written and is read-only, Unsupported if it wants a gradient.
[[nodiscard]] Array import_array(std::string_view name, nb::handle object, Access access,
                                 CallStream& stream);

/// Throws Unsupported where `object` is one for which gradients would be computed.
void check_no_gradient(std::string_view name, nb::handle object);

/// Throws TypeMismatch unless the elements are float32, float16, bfloat16 or bool.
[[nodiscard]] ElementType element_type_of(const Array& array);

/// A vector, as a matrix of one row, or a matrix. Throws TypeMismatch unless it holds
/// int32 or int64, InvalidArgument unless its rows are contiguous.
[[nodiscard]] IndexView index_vector(const Array& array);
[[nodiscard]] IndexView index_table(const Array& array);

/// Throws InvalidArgument unless `array` has `rank` dimensions; `dimensions` names them.
void check_rank(const Array& array, int rank, std::string_view dimensions);

/// The tensor of `array`, whose dimensions are called `dimensions`.
template <int kRank>
[[nodiscard]] MutableTensorView<kRank> tensor(const Array& array, std::string_view dimensions) {
  check_rank(array, kRank, dimensions);
  MutableTensorView<kRank> view;
  view.data = array.data;
  view.type = element_type_of(array);
  std::copy_n(array.shape.begin(), kRank, view.shape.begin());
  std::copy_n(array.strides.begin(), kRank, view.strides.begin());
  view.device = array.device;
  return view;
}

/// `view` with a first dimension of one element more.
template <int kRank>
[[nodiscard]] MutableTensorView<kRank + 1> as_one(const MutableTensorView<kRank>& view) {
  MutableTensorView<kRank + 1> one{view.data, view.type, {1}, {}, view.device};
  std::copy_n(view.shape.begin(), kRank, one.shape.begin() + 1);
  std::copy_n(view.strides.begin(), kRank, one.strides.begin() + 1);
  one.strides[0] = view.shape[0] * view.strides[0];
  return one;
}

}  // namespace leanattn::python
