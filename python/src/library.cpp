#include "library.h"

#include <array>
#include <utility>

namespace leanattn::python {
namespace {

struct Known {
  const char* module;  // of a class, or of a package around its module
  const char* class_name;
  Library library;
};

constexpr std::array<Known, 4> kKnown = {{{"numpy", "ndarray", Library::kNumpy},
                                          {"torch", "Tensor", Library::kTorch},
                                          {"cupy", "ndarray", Library::kCupy},
                                          {"jaxlib", "ArrayImpl", Library::kJax}}};

/// Classes seen before, which are held, so that no other takes their address.
struct Seen {
  PyTypeObject* type = nullptr;
  Library library = Library::kOther;
};
constexpr std::size_t kMostSeen = 8;

bool is_of(PyTypeObject* type, const Known& known) {
  const nb::handle handle(reinterpret_cast<PyObject*>(type));
  const nb::object module = nb::getattr(handle, "__module__", nb::none());
  if (!PyUnicode_Check(module.ptr())) return false;
  const std::string_view package = nb::borrow<nb::str>(module).c_str();
  const std::string_view name = nb::str(handle.attr("__name__")).c_str();
  return name == known.class_name && package.substr(0, package.find('.')) == known.module;
}

Library look_up(PyTypeObject* type) {
  PyObject* bases = type->tp_mro;
  for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
    for (const Known& known : kKnown) {
      if (is_of(base, known)) return known.library;
    }
  }
  return Library::kOther;
}

}  // namespace

std::string_view name_of(Library library) {
  switch (library) {
    case Library::kNumpy: return "numpy";
    case Library::kTorch: return "torch";
    case Library::kCupy: return "cupy";
    case Library::kJax: return "jax";
    case Library::kOther: break;
  }
  return "other";
}

Library library_of(nb::handle object) {
  static std::array<Seen, kMostSeen> seen;
  PyTypeObject* type = Py_TYPE(object.ptr());
  for (const Seen& each : seen) {
    if (each.type == type) return each.library;
  }
  const Library library = look_up(type);
  if (library == Library::kOther) return library;
  for (Seen& each : seen) {
    if (each.type != nullptr) continue;
    Py_INCREF(type);
    each = {type, library};
    break;
  }
  return library;
}

std::string class_name(nb::handle object) {
  return nb::str(object.type().attr("__name__")).c_str();
}

const Torch& torch() {
  // Not by a static's initialiser: Python may let other threads run meanwhile.
  static Torch* found = nullptr;
  if (found == nullptr) {
    const nb::module_ module = nb::module_::import_("torch");
    Torch made;
    const auto held = [](const nb::handle& from, const char* name) {
      return nb::object(from.attr(name)).release();
    };
    made.to_dlpack = held(nb::module_::import_("torch.utils.dlpack"), "to_dlpack");
    made.is_grad_enabled = held(module, "is_grad_enabled");
    made.current_stream = held(nb::module_::import_("torch.cuda"), "current_stream");
    made.raw_stream =
        nb::getattr(module.attr("_C"), "_cuda_getCurrentRawStream", nb::none()).release();
    if (found == nullptr) found = new Torch(made);
  }
  return *found;
}

}  // namespace leanattn::python
