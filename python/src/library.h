// The array libraries that are treated in a way of their own, told by an object's type:
// none is imported before an array of it is seen.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace leanattn::python {

namespace nb = nanobind;

enum class Library : std::uint8_t { kNumpy, kTorch, kCupy, kJax, kOther };

/// "numpy", "torch", "cupy", "jax" or "other".
[[nodiscard]] std::string_view name_of(Library library);

/// The library of an array; a subclass's is that of its base.
[[nodiscard]] Library library_of(nb::handle object);

/// "ndarray", "Tensor", …
[[nodiscard]] std::string class_name(nb::handle object);

/// What is asked of torch. Never released: the interpreter may end before this library.
struct Torch {
  nb::handle to_dlpack;        // capsule of a tensor, without any synchronisation
  nb::handle is_grad_enabled;  // whether operations are recorded for gradients
  nb::handle current_stream;   // of a device; has the attribute cuda_stream
  nb::handle raw_stream;       // that attribute at once, from torch's own inside, or None
};

/// For use where there is a tensor of torch.
[[nodiscard]] const Torch& torch();

}  // namespace leanattn::python
