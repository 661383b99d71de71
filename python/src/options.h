// The numbers and names of a call, by keyword: a wrong one is refused with a sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "keywords.h"
#include "leanattn/attention.h"

namespace leanattn::python {

struct Options {
  ScoreRules rules;
  std::string backend = "auto";
  PlanOptions plan_options;  // without its backend: see `for_planning`

  explicit Options(Keywords& keywords);

  /// The options of a plan, as long as this lives.
  [[nodiscard]] PlanOptions for_planning() const;
};

/// The integer that `object` is; none for None. Throws TypeMismatch for anything else.
[[nodiscard]] std::optional<std::int64_t> optional_count(std::string_view name, nb::handle object);

/// The element type called `name`, such as "float32". Throws TypeMismatch if there is none.
[[nodiscard]] ElementType element_type_called(std::string_view name);

}  // namespace leanattn::python
