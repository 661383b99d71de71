// The stream of a call, as Python says it.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "leanattn/stream.h"
#include "library.h"

namespace leanattn::python {

namespace nb = nanobind;

/// What `stream` is: an integer, the handle itself, or an object that has cuda_stream, ptr
/// or __cuda_stream__. Throws TypeMismatch or InvalidArgument for anything else.
[[nodiscard]] Stream stream_of(nb::handle stream);

/// The stream of a call: the caller's, else the one in which the library of the first array
/// in device memory works now, else the default stream.
class CallStream {
 public:
  /// `given` may be None.
  explicit CallStream(nb::handle given);

  [[nodiscard]] bool given() const { return given_; }
  /// The stream; until an array in device memory was seen, the default one where none is given.
  [[nodiscard]] Stream get() const { return stream_.value_or(Stream{}); }
  /// The stream for an array of `library` in memory of device `index`.
  Stream for_array(Library library, int index);

 private:
  bool given_;
  std::optional<Stream> stream_;
};

}  // namespace leanattn::python
