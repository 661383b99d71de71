// What stands beside attention, from Python: merging of results, appending to a cache.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

namespace leanattn::python {

namespace nb = nanobind;

/// Merges `out_a` and `out_b`, which have three dimensions, or four as `decode` gives them.
void merge_two(const nb::dict& objects);

/// Merges the parts of `outs` and `lses`, with one dimension more in front.
void merge_parts(const nb::dict& objects);

void append(std::string_view layout, const nb::dict& objects);

}  // namespace leanattn::python
