// The arguments of a call that are given by keyword.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>
#include <vector>

namespace leanattn::python {

namespace nb = nanobind;

/// What a dict of Python's holds, by name; made and used with the GIL held, while the dict lives.
class Keywords {
 public:
  explicit Keywords(const nb::dict& values);

  /// The value called `name`, or an invalid handle where there is none.
  [[nodiscard]] nb::handle find(std::string_view name);
  /// Throws TypeMismatch, naming one, unless every value has been found.
  void check_all_found(std::string_view taker) const;

 private:
  struct Entry {
    std::string_view name;
    nb::handle value;
    bool found = false;
  };
  std::vector<Entry> entries_;
};

}  // namespace leanattn::python
