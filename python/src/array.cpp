#include "array.h"

#include <nanobind/stl/string.h>

#include <cstddef>
#include <string>

namespace leanattn::python {
namespace {

using Code = nb::dlpack::dtype_code;

/// What stands for the memory of an array without elements, for which some libraries
/// give no address: to leanattn a view without one is "not given".
alignas(64) std::byte no_elements[64];

std::string class_name(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

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

/// numpy.ndarray, which is never released: the interpreter may end before this library.
nb::handle numpy_array_type() {
  static const nb::handle type =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release();
  return type;
}

/// numpy's bfloat16, which ml_dtypes adds; numpy lets it out by no protocol. The types that
/// others add are numbered from 256 on; to ask for a name takes numpy a microsecond.
bool is_numpy_bfloat16(nb::handle object) {
  if (!nb::isinstance(object, numpy_array_type())) return false;
  const nb::object dtype = object.attr("dtype");
  return nb::cast<int>(dtype.attr("num")) >= 256 &&
         nb::cast<std::string>(dtype.attr("name")) == "bfloat16";
}

void check_no_gradient(std::string_view name, nb::handle object) {
  PyObject* flag = PyObject_GetAttrString(object.ptr(), "requires_grad");
  if (flag == nullptr) PyErr_Clear();
  const bool wanted = flag == Py_True;
  Py_XDECREF(flag);
  check<Unsupported>(!wanted, name, " has requires_grad True; it must be False, because leanattn ",
                     "computes no gradients: give ", name, ".detach()");
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

}  // namespace

Array import_array(std::string_view name, nb::handle object, Access access) {
  // A missing attribute takes numpy a microsecond too.
  if (!object.type().is(numpy_array_type())) check_no_gradient(name, object);
  const bool numpy_bfloat16 = is_numpy_bfloat16(object);
  nb::object bits;
  if (numpy_bfloat16) {
    bits = object.attr("view")("uint16");  // of the same memory
    object = bits;
  }
  Array array;
  array.name = name;
  array.owner = owner_of(object, access);
  if (!array.owner.is_valid()) {
    check(access == Access::kRead || !owner_of(object, Access::kRead).is_valid(), name,
          " is read-only; it must be writable");
    const nb::object dtype = nb::getattr(object, "dtype", nb::none());
    throw TypeMismatch(concat(name, " is a ", class_name(object), dtype.is_none() ? "" : " of ",
                              dtype.is_none() ? "" : nb::str(dtype).c_str(),
                              "; it must be an array of numbers that has __dlpack__ or a buffer"));
  }
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
