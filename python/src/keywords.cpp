#include "keywords.h"

#include "leanattn/error.h"

namespace leanattn::python {

Keywords::Keywords(const nb::dict& values) {
  entries_.reserve(values.size());
  PyObject* key = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t position = 0;
  while (PyDict_Next(values.ptr(), &position, &key, &value) != 0) {
    Py_ssize_t size = 0;
    const char* name = PyUnicode_AsUTF8AndSize(key, &size);
    if (name == nullptr) throw nb::python_error();
    entries_.push_back({{name, static_cast<std::size_t>(size)}, value});
  }
}

nb::handle Keywords::find(std::string_view name) {
  for (Entry& entry : entries_) {
    if (entry.name != name) continue;
    entry.found = true;
    return entry.value;
  }
  return {};
}

void Keywords::check_all_found(std::string_view taker) const {
  for (const Entry& entry : entries_) {
    check<TypeMismatch>(entry.found, taker, " takes no argument called ", entry.name,
                        "; the documentation of leanattn.decode lists those there are");
  }
}

}  // namespace leanattn::python
