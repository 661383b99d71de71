// The tensors of one call of attention, from Python's arrays.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <string_view>
#include <vector>

#include "array.h"
#include "leanattn/problem.h"

namespace leanattn::python {

/// The arrays of a call by the names of its arguments, whatever is not given being None or
/// left out. Shared by the calls of attention and by append_kv.
class NamedArrays {
 public:
  explicit NamedArrays(const nb::dict& objects) : objects_(objects) {}

  /// The array called `name`, which is kept; nullptr where it is not given.
  [[nodiscard]] const Array* find(const char* name, Access access = Access::kRead);
  /// Likewise; throws TypeMismatch where it is not given.
  [[nodiscard]] const Array& get(const char* name, Access access = Access::kRead);
  /// The vector called `name`, or a view that is not given.
  [[nodiscard]] IndexView find_vector(const char* name);

 private:
  nb::dict objects_;
  std::deque<Array> arrays_;  // addresses stay
};

/// Reads `layout`, "NHD" or "HND". Throws InvalidArgument for another.
[[nodiscard]] bool is_hnd(std::string_view layout);

/// The cache whose tensors are called `k_name` and `v_name`, with its tables.
[[nodiscard]] MutableKvView cache_of(NamedArrays& arrays, const char* k_name, const char* v_name,
                                     bool hnd, Access access);

class Call {
 public:
  Call(std::string_view layout, const nb::dict& objects);

  /// Without results; see `with_results`.
  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  [[nodiscard]] bool ragged() const { return arguments_.q_offsets.given(); }
  /// Most keys that a sequence of this cache has room for.
  [[nodiscard]] std::int64_t capacity() const;
  /// The shape that `out` has, as the caller sees it.
  [[nodiscard]] nb::tuple out_shape() const;

  /// The arguments with places for the results; `lse` may be None.
  [[nodiscard]] Arguments with_results(NamedArrays& results) const;

 private:
  void take_tensors(bool hnd);
  void take_lengths();

  NamedArrays arrays_;
  Arguments arguments_;
  std::vector<std::int64_t> full_lengths_;
};

}  // namespace leanattn::python
