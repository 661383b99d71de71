#include "array.h"

#include <nanobind/stl/pair.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "library.h"

namespace leanattn::python {
namespace {

using Code = nb::dlpack::dtype_code;

/// What stands for the memory of an array without elements, for which some libraries
/// give no address: to leanattn a view without one is "not given".
alignas(64) std::byte no_elements[64];

/// "float32", "uint16", …
std::string name_of(nb::dlpack::dtype type) {
  const char* kind = "type of DLPack code ";
  switch (static_cast<Code>(type.code)) {
    case Code::Int: kind = "int"; break;
    case Code::UInt: kind = "uint"; break;
    case Code::Float: kind = "float"; break;
    case Code::Bfloat: kind = "bfloat"; break;
    case Code::Complex: kind = "complex"; break;
    case Code::Bool: return "bool";
    default: return concat("of ", int{type.bits}, " bits and DLPack code ", int{type.code});
  }
  return concat(kind, int{type.bits}, type.lanes > 1 ? concat("x", type.lanes) : std::string());
}

bool is(nb::dlpack::dtype type, Code code, int bits) {
  return type.code == static_cast<std::uint8_t>(code) && type.bits == bits && type.lanes == 1;
}

/// A name that attributes are looked up by, which is never released.
nb::handle interned(const char* name) { return PyUnicode_InternFromString(name); }

/// The attribute, or none; a missing one takes Python a microsecond.
nb::object attribute(nb::handle object, nb::handle name) {
  PyObject* value = PyObject_GetAttr(object.ptr(), name.ptr());
  if (value == nullptr) PyErr_Clear();
  return value == nullptr ? nb::none() : nb::steal(value);
}

/// numpy's bfloat16, which ml_dtypes adds; numpy lets it out by no protocol. The types that
/// others add are numbered from 256 on; to ask for a name takes numpy a microsecond.
bool is_numpy_bfloat16(nb::handle object) {
  static const nb::handle kDtype = interned("dtype"), kNum = interned("num");
  const nb::object dtype = attribute(object, kDtype);
  const nb::object number = attribute(dtype, kNum);
  return PyLong_Check(number.ptr()) && PyLong_AsLong(number.ptr()) >= 256 &&
         std::string_view(nb::str(dtype.attr("name")).c_str()) == "bfloat16";
}

/// Whether gradients would be computed of an operation on `object`.
bool wants_gradient(nb::handle object, Library library) {
  static const nb::handle kFlag = interned("requires_grad");
  const bool is_python_class = PyType_HasFeature(Py_TYPE(object.ptr()), Py_TPFLAGS_HEAPTYPE);
  if (library == Library::kNumpy && !is_python_class) return false;
  if (library == Library::kCupy || library == Library::kJax) return false;
  if (!attribute(object, kFlag).is(Py_True)) return false;
  return library != Library::kTorch || torch().is_grad_enabled().is(Py_True);
}

void check_no_gradient(std::string_view name, nb::handle object, Library library) {
  check<Unsupported>(!wants_gradient(object, library), name, " has requires_grad True; it must be ",
                     "False, because leanattn computes no gradients: give ", name,
                     ".detach(), or call under torch.no_grad()");
}

/// An owner of the memory of `object`, or one that is not valid.
nb::ndarray<nb::ro> owner_of(nb::handle object, Access access) {
  if (access == Access::kWrite) {
    nb::ndarray<> writable;
    if (!nb::try_cast(object, writable, false)) return {};
    return nb::ndarray<nb::ro>(writable);
  }
  nb::ndarray<nb::ro> readable;
  if (!nb::try_cast(object, readable, false)) return {};
  return readable;
}

Device device_of(std::string_view name, int type, int index) {
  switch (type) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value: return {};
    case nb::device::cuda::value:
    case nb::device::cuda_managed::value: return {Device::Kind::kDevice, index};
    default:
      throw TypeMismatch(concat(name, " lies on a device of DLPack type ", type,
                                "; it must lie in host memory (1) or that of a CUDA device (2)"));
  }
}

/// The capsule of an array whose library says that it lies in device memory, asked to have it
/// ready in the stream; none for others.
nb::object capsule_of_device(std::string_view name, nb::handle object, Library library,
                             CallStream& stream) {
  static const nb::handle kDevice = interned("__dlpack_device__");
  const nb::object ask = attribute(object, kDevice);
  if (ask.is_none()) return ask;
  const auto [type, index] = nb::cast<std::pair<int, int>>(nb::tuple(ask()));
  if (device_of(name, type, index).kind == Device::Kind::kHost) return nb::none();
  constexpr std::uintptr_t kDefault = 1;  // as DLPack calls CUDA's default stream
  const auto handle = reinterpret_cast<std::uintptr_t>(stream.for_array(library, index).handle);
  return object.attr("__dlpack__")(nb::arg("stream") = handle == 0 ? kDefault : handle);
}

/// What `object` lets itself be read through; itself where that fails.
nb::object exporter_of(std::string_view name, nb::handle object, Library library,
                       CallStream& stream) {
  if (library == Library::kTorch) {
    // torch's own __dlpack__ refuses what requires a gradient, and all devices but one. Its work
    // is in the stream that is taken by default.
    try {
      return torch().to_dlpack(object);
    } catch (nb::python_error&) {  // sparse, quantised, of 8 bits
      return nb::borrow(object);
    }
  }
  const nb::object capsule = capsule_of_device(name, object, library, stream);
  return capsule.is_none() ? nb::borrow(object) : capsule;
}

/// Throws the reason why `object` has no owner for `access`.
[[noreturn]] void refuse(std::string_view name, nb::handle object, Access access) {
  check(access == Access::kRead || !owner_of(object, Access::kRead).is_valid(), name,
        " is read-only; it must be writable");
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  throw TypeMismatch(concat(name, " is a ", class_name(object), dtype.is_none() ? "" : " of ",
                            dtype.is_none() ? "" : nb::str(dtype).c_str(),
                            "; it must be an array of numbers that has __dlpack__ or a buffer"));
}

}  // namespace

void check_no_gradient(std::string_view name, nb::handle object) {
  check_no_gradient(name, object, library_of(object));
}

Array import_array(std::string_view name, nb::handle object, Access access, CallStream& stream) {
  const Library library = library_of(object);
  const bool is_numpy = library == Library::kNumpy;
  check_no_gradient(name, object, library);
  check(access == Access::kRead || library != Library::kJax, name,
        " is a JAX array, which is immutable; it must be writable");
  const bool numpy_bfloat16 = is_numpy && is_numpy_bfloat16(object);
  const nb::object exporter = numpy_bfloat16 ? object.attr("view")("uint16")  // the same memory
                              : is_numpy     ? nb::borrow(object)
                                             : exporter_of(name, object, library, stream);
  Array array;
  array.name = name;
  array.owner = owner_of(exporter, access);
  if (!array.owner.is_valid()) refuse(name, object, access);
  array.type = array.owner.dtype();
  if (numpy_bfloat16) array.type.code = static_cast<std::uint8_t>(Code::Bfloat);
  array.rank = static_cast<int>(array.owner.ndim());
  check(array.rank <= kMaxRank, name, " has ", array.rank, " dimensions; it must have at most ",
        kMaxRank);
  bool empty = false;
  for (int i = 0; i < array.rank; ++i) {
    const auto d = static_cast<std::size_t>(i);
    array.shape[d] = static_cast<std::int64_t>(array.owner.shape(d));
    array.strides[d] = array.owner.stride(d);
    empty = empty || array.shape[d] == 0;
  }
  array.device = device_of(name, array.owner.device_type(), array.owner.device_id());
  if (array.device.kind == Device::Kind::kDevice) {
    static_cast<void>(stream.for_array(library, array.device.index));
  }
  array.data = const_cast<void*>(static_cast<const void*>(array.owner.data()));
  if (array.data == nullptr && empty) array.data = no_elements;
  return array;
}

ElementType element_type_of(const Array& array) {
  if (is(array.type, Code::Float, 32)) return ElementType::kFloat32;
  if (is(array.type, Code::Float, 16)) return ElementType::kFloat16;
  if (is(array.type, Code::Bfloat, 16)) return ElementType::kBFloat16;
  if (is(array.type, Code::Bool, 8)) return ElementType::kBool;
  throw TypeMismatch(concat(array.name, " is ", name_of(array.type),
                            "; it must be float32, float16 or bfloat16, or bool where a mask is"));
}

void check_rank(const Array& array, int rank, std::string_view dimensions) {
  check(array.rank == rank, array.name, " has ", array.rank, " dimensions; it must have ", rank,
        ": ", dimensions);
}

IndexView index_table(const Array& array) {
  check_rank(array, 2, "[batch, width]");
  const bool is_int32 = is(array.type, Code::Int, 32);
  check<TypeMismatch>(is_int32 || is(array.type, Code::Int, 64), array.name, " is ",
                      name_of(array.type), "; it must be int32 or int64");
  check(array.strides[1] == 1 || array.shape[1] <= 1 || array.shape[0] == 0, array.name,
        " has stride ", array.strides[1], " in its last dimension; it must be 1");
  return {array.data,       is_int32 ? IndexType::kInt32 : IndexType::kInt64,
          array.shape[0],   array.shape[1],
          array.strides[0], array.device};
}

IndexView index_vector(const Array& array) {
  check_rank(array, 1, "a vector");
  Array row = array;
  row.rank = 2;
  row.shape = {1, array.shape[0]};
  row.strides = {array.shape[0], array.strides[0]};
  return index_table(row);
}

}  // namespace leanattn::python
