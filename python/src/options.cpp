#include "options.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <tuple>
#include <utility>

#include "array.h"

namespace leanattn::python {
namespace {

/// The value called `name` as a Value. Throws TypeMismatch that says what it must be.
template <class Value>
Value read(const nb::dict& values, const char* name, const char* allowed) {
  const nb::object object = values[name];
  Value value{};
  check<TypeMismatch>(nb::try_cast(object, value), name, " is ", nb::repr(object).c_str(),
                      "; it must be ", allowed);
  return value;
}

template <class Value>
std::optional<Value> read_optional(const nb::dict& values, const char* name, const char* allowed) {
  if (nb::object(values[name]).is_none()) return std::nullopt;
  return read<Value>(values, name, allowed);
}

std::int64_t read_count(const nb::dict& values, const char* name) {
  return read<std::int64_t>(values, name, "an integer");
}

PartitionChoice partition_called(const std::string& name) {
  for (const PartitionChoice choice : {PartitionChoice::kAuto, PartitionChoice::kOneTile,
                                       PartitionChoice::kFixedSplit, PartitionChoice::kStreamK}) {
    if (leanattn::name_of(choice) == name) return choice;
  }
  throw InvalidArgument(
      concat("partition is ", name, "; allowed are auto, one_tile, fixed_split and stream_k"));
}

ElementType element_type_called(const std::string& name) {
  if (name == "float32") return ElementType::kFloat32;
  if (name == "float16") return ElementType::kFloat16;
  if (name == "bfloat16") return ElementType::kBFloat16;
  throw TypeMismatch(concat("out_dtype is ", name, "; it must be float32, float16 or bfloat16"));
}

}  // namespace

Options::Options(const nb::dict& values)
    : backend(read<std::string>(values, "backend", "a string")) {
  if (const auto scale = read_optional<double>(values, "scale", "a number or None")) {
    rules.scale = static_cast<float>(*scale);
  }
  rules.softcap = static_cast<float>(read<double>(values, "softcap", "a number"));
  rules.window.causal = read<bool>(values, "causal", "True or False");
  std::tie(rules.window.left, rules.window.right) =
      read<std::pair<std::int64_t, std::int64_t>>(values, "window", "two integers, (left, right)");
  plan_options.backend = backend;
  plan_options.partition = partition_called(read<std::string>(values, "partition", "a string"));
  plan_options.num_splits = read_count(values, "num_splits");
  plan_options.num_workers = read_count(values, "num_workers");
  plan_options.num_threads = read_count(values, "num_threads");
  plan_options.batch_invariant = read<bool>(values, "batch_invariant", "True or False");
  const nb::object out = values["out"];
  const auto out_dtype = read_optional<std::string>(values, "out_dtype", "a string or None");
  if (out_dtype) {
    check(out.is_none(), "out_dtype is ", *out_dtype,
          ", but out is given; it must be left out, because it would be ignored");
    out_type = element_type_called(*out_dtype);
  } else if (!out.is_none()) {
    out_type = element_type_of(import_array("out", out, Access::kRead));
  }
  max_q_len = read_optional<std::int64_t>(values, "max_q_len", "an integer or None");
  max_kv_len = read_optional<std::int64_t>(values, "max_kv_len", "an integer or None");
}

}  // namespace leanattn::python
