// The numbers and names of a call, from a dict of Python's whose keys are the names of
// the arguments: every one is there, and a wrong one is refused with a sentence.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "leanattn/attention.h"

namespace leanattn::python {

namespace nb = nanobind;

struct Options {
  ScoreRules rules;
  std::string backend;  // what plan_options.backend views
  PlanOptions plan_options;
  std::optional<ElementType> out_type;  // that of out, or out_dtype; default: q's
  std::optional<std::int64_t> max_q_len;
  std::optional<std::int64_t> max_kv_len;

  explicit Options(const nb::dict& values);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
};

}  // namespace leanattn::python
