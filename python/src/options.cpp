#include "options.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <tuple>
#include <utility>

namespace leanattn::python {
namespace {

/// The value called `name`; `fallback` where it is not given. Throws TypeMismatch that says what
/// it must be.
template <class Value>
Value read(Keywords& keywords, std::string_view name, Value fallback, std::string_view allowed) {
  const nb::handle object = keywords.find(name);
  if (!object.is_valid()) return fallback;
  Value value{};
  check<TypeMismatch>(nb::try_cast(object, value), name, " is ", nb::repr(object).c_str(),
                      "; it must be ", allowed);
  return value;
}

std::int64_t read_count(Keywords& keywords, std::string_view name) {
  return read<std::int64_t>(keywords, name, 0, "an integer");
}

bool read_flag(Keywords& keywords, std::string_view name) {
  return read<bool>(keywords, name, false, "True or False");
}

PartitionChoice partition_called(const std::string& name) {
  for (const PartitionChoice choice : {PartitionChoice::kAuto, PartitionChoice::kOneTile,
                                       PartitionChoice::kFixedSplit, PartitionChoice::kStreamK}) {
    if (leanattn::name_of(choice) == name) return choice;
  }
  throw InvalidArgument(
      concat("partition is ", name, "; allowed are auto, one_tile, fixed_split and stream_k"));
}

ScoreRules read_rules(Keywords& keywords) {
  ScoreRules rules;
  const nb::handle scale = keywords.find("scale");
  if (scale.is_valid() && !scale.is_none()) {
    rules.scale = static_cast<float>(read<double>(keywords, "scale", 0, "a number or None"));
  }
  rules.softcap = static_cast<float>(read<double>(keywords, "softcap", 0, "a number"));
  rules.window.causal = read_flag(keywords, "causal");
  std::tie(rules.window.left, rules.window.right) = read<std::pair<std::int64_t, std::int64_t>>(
      keywords, "window", {-1, -1}, "two integers, (left, right)");
  return rules;
}

}  // namespace

Options::Options(Keywords& keywords)
    : rules(read_rules(keywords)),
      backend(read<std::string>(keywords, "backend", "auto", "a string")) {
  plan_options.partition =
      partition_called(read<std::string>(keywords, "partition", "auto", "a string"));
  plan_options.num_splits = read_count(keywords, "num_splits");
  plan_options.num_workers = read_count(keywords, "num_workers");
  plan_options.num_threads = read_count(keywords, "num_threads");
  plan_options.batch_invariant = read_flag(keywords, "batch_invariant");
  plan_options.checked = read_flag(keywords, "checked");
}

PlanOptions Options::for_planning() const {
  PlanOptions options = plan_options;
  options.backend = backend;
  return options;
}

std::optional<std::int64_t> optional_count(std::string_view name, nb::handle object) {
  if (object.is_none()) return std::nullopt;
  std::int64_t value = 0;
  check<TypeMismatch>(nb::try_cast(object, value), name, " is ", nb::repr(object).c_str(),
                      "; it must be an integer or None");
  return value;
}

ElementType element_type_called(std::string_view name) {
  if (name == "float32") return ElementType::kFloat32;
  if (name == "float16") return ElementType::kFloat16;
  if (name == "bfloat16") return ElementType::kBFloat16;
  throw TypeMismatch(concat("out_dtype is ", name, "; it must be float32, float16 or bfloat16"));
}

}  // namespace leanattn::python
