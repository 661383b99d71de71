#include "stream.h"

#include <cstdint>

#include "leanattn/error.h"

namespace leanattn::python {
namespace {

Stream of_handle(nb::handle handle) {
  std::int64_t value = 0;
  check<TypeMismatch>(!PyBool_Check(handle.ptr()) && nb::try_cast(handle, value), "stream is ",
                      nb::repr(handle).c_str(), "; a handle must be an integer");
  check(value >= 0, "stream is ", value, "; a handle must be at least 0, the default stream");
  Stream stream;
  stream.handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(value));
  return stream;
}

/// The attribute called `name`, called if it is a method; none where there is none.
nb::object value_of(nb::handle object, const char* name) {
  const nb::object value = nb::getattr(object, name, nb::none());
  return PyCallable_Check(value.ptr()) ? value() : value;
}

/// The stream of device `index` that `library` works in.
Stream current_stream(Library library, int index) {
  if (library == Library::kTorch) {
    const Torch& functions = torch();
    return of_handle(functions.raw_stream.is_none()
                         ? nb::object(functions.current_stream(index).attr("cuda_stream"))
                         : functions.raw_stream(index));
  }
  if (library == Library::kCupy) {
    return of_handle(
        nb::module_::import_("cupy").attr("cuda").attr("get_current_stream")(index).attr("ptr"));
  }
  return {};
}

}  // namespace

Stream stream_of(nb::handle stream) {
  if (PyLong_Check(stream.ptr())) return of_handle(stream);
  for (const char* name : {"cuda_stream", "ptr"}) {
    const nb::object handle = nb::getattr(stream, name, nb::none());
    if (!handle.is_none()) return of_handle(handle);
  }
  const nb::object pair = value_of(stream, "__cuda_stream__");  // (version, handle)
  check<TypeMismatch>(PyTuple_Check(pair.ptr()) && PyTuple_GET_SIZE(pair.ptr()) == 2,
                      "stream is a ", class_name(stream),
                      "; it must be None, an integer, or have cuda_stream, ptr or __cuda_stream__");
  return of_handle(PyTuple_GET_ITEM(pair.ptr(), 1));
}

CallStream::CallStream(nb::handle given) : given_(!given.is_none()) {
  if (given_) stream_ = stream_of(given);
}

Stream CallStream::for_array(Library library, int index) {
  if (!stream_) stream_ = current_stream(library, index);
  return *stream_;
}

}  // namespace leanattn::python
