// The arguments of one call of attention, from Python's.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <vector>

#include "array.h"
#include "keywords.h"
#include "leanattn/problem.h"
#include "library.h"
#include "options.h"
#include "stream.h"

namespace leanattn::python {

/// The arrays of a call, which are kept. Shared by the calls of attention and by append_kv.
class Arrays {
 public:
  explicit Arrays(const nb::dict& keywords, nb::handle stream = nb::none())
      : keywords_(keywords), stream_(stream) {}

  /// `object` as the array called `name`. Throws TypeMismatch where it is None.
  [[nodiscard]] const Array& get(const char* name, nb::handle object,
                                 Access access = Access::kRead);
  /// The array given by keyword; throws TypeMismatch where it is None or not given.
  [[nodiscard]] const Array& get(const char* name, Access access = Access::kRead);
  /// Likewise; nullptr where it is None or not given.
  [[nodiscard]] const Array* find(const char* name, Access access = Access::kRead);
  /// The vector given by keyword, or a view that is not given.
  [[nodiscard]] IndexView find_vector(const char* name);

  [[nodiscard]] Keywords& keywords() { return keywords_; }
  [[nodiscard]] CallStream& stream() { return stream_; }
  [[nodiscard]] const CallStream& stream() const { return stream_; }

 private:
  Keywords keywords_;
  CallStream stream_;
  std::deque<Array> arrays_;  // addresses stay
};

/// Reads `layout`, "NHD" or "HND". Throws InvalidArgument for another.
[[nodiscard]] bool is_hnd(std::string_view layout);

/// The cache of `k` and `v`, with its tables.
[[nodiscard]] MutableKvView cache_of(Arrays& arrays, const Array& k, const Array& v, bool hnd);

/// The four arrays by position and the stream that calls have, any of which may be None.
struct Inputs {
  nb::handle q, k, v, lengths, stream;
};

class Call {
 public:
  /// Takes arrays and options by keyword.
  Call(const Inputs& inputs, const nb::dict& keywords);
  /// Of a plan for `layout`: takes arrays only.
  Call(const Inputs& inputs, const nb::dict& keywords, std::string_view layout);

  /// Without results; see `with_results`.
  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  /// Of a call without a plan.
  [[nodiscard]] const Options& options() const { return *options_; }
  [[nodiscard]] bool ragged() const { return arguments_.q_offsets.given(); }
  [[nodiscard]] bool on_host() const { return arguments_.q.device.kind == Device::Kind::kHost; }
  [[nodiscard]] Library library() const { return library_; }
  [[nodiscard]] bool hnd() const { return hnd_; }
  [[nodiscard]] Stream stream() const { return arrays_.stream().get(); }
  [[nodiscard]] bool stream_given() const { return arrays_.stream().given(); }
  [[nodiscard]] std::int64_t batch() const;
  /// Most keys that a sequence of this cache has room for.
  [[nodiscard]] std::int64_t capacity() const;
  /// The shape that `out` has, as the caller sees it.
  [[nodiscard]] nb::tuple out_shape() const;

  /// Whether there are no lengths: in device memory they are the caller's to make.
  [[nodiscard]] bool lacks_lengths() const { return lacks_lengths_; }
  void set_lengths(nb::handle lengths);

  /// The array that `out` is, taken once.
  const Array& take_out(nb::handle out);
  /// The arguments with places for the results; `lse` may be None.
  [[nodiscard]] Arguments with_results(nb::handle out, nb::handle lse);
  /// The array that `workspace` is.
  [[nodiscard]] const Array& take_workspace(nb::handle workspace);

 private:
  void take_tensors(const Inputs& inputs);
  void take_cache(const Inputs& inputs);
  void take_bias(const Array& bias);
  void take_lengths(nb::handle lengths);

  Arrays arrays_;
  Library library_;
  std::optional<Options> options_;
  bool hnd_ = false;
  bool lacks_lengths_ = false;
  Arguments arguments_;
  std::vector<std::int64_t> full_lengths_;
  const Array* out_ = nullptr;
};

}  // namespace leanattn::python
