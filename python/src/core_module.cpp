// The extension leanattn._core: calls, plans and what stands beside them. The functions
// that people use, with their documentation, are Python, in leanattn/*.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "array.h"
#include "call.h"
#include "leanattn/attention.h"
#include "options.h"
#include "plan_cache.h"
#include "states.h"

namespace leanattn::python {
namespace {

std::string_view numpy_name_of(ElementType type) {
  switch (type) {
    case ElementType::kFloat32: return "float32";
    case ElementType::kFloat16: return "float16";
    case ElementType::kBFloat16: return "bfloat16";
    case ElementType::kBool: return "bool";
  }
  return "?";
}

/// What a plan needs to know beside the call; each may be None.
struct Wanted {
  nb::handle out, out_dtype, max_q_len, max_kv_len;
};

ElementType out_type_of(Call& call, const Wanted& wanted) {
  if (wanted.out_dtype.is_none()) {
    return wanted.out.is_none() ? call.arguments().q.type
                                : element_type_of(call.take_out(wanted.out));
  }
  const std::string name = nb::str(wanted.out_dtype).c_str();
  check(wanted.out.is_none(), "out_dtype is ", name,
        ", but out is given; it must be left out, because it would be ignored");
  return element_type_called(name);
}

Problem problem_for(Call& call, const Wanted& wanted) {
  Arguments arguments = call.arguments();
  arguments.out.type = out_type_of(call, wanted);
  Problem problem = problem_of(arguments, call.options().rules);
  if (call.lacks_lengths()) problem.max_kv_len = call.capacity();
  if (const auto max_kv_len = optional_count("max_kv_len", wanted.max_kv_len)) {
    problem.max_kv_len = *max_kv_len;
  }
  if (const auto max_q_len = optional_count("max_q_len", wanted.max_q_len)) {
    check(problem.ragged_q, "max_q_len is ", *max_q_len,
          "; it must be None without q_offsets, where q has q_len queries for each sequence");
    problem.max_q_len = *max_q_len;
  }
  return problem;
}

std::shared_ptr<Plan> plan_for(Call& call, nb::handle out, nb::handle out_dtype,
                               nb::handle max_q_len, nb::handle max_kv_len) {
  return plan_of(problem_for(call, {out, out_dtype, max_q_len, max_kv_len}),
                 call.options().for_planning());
}

nb::object why_not(Call& call, nb::handle out_dtype) {
  try {
    const nb::object none = nb::none();
    static_cast<void>(plan_for(call, none, out_dtype, none, none));
    return none;
  } catch (const Unsupported& error) {
    return nb::str(error.what());
  }
}

/// The bytes of a caller's workspace, which a plan for `device` uses.
std::span<std::byte> bytes_of(const Array& array, Device device) {
  check<TypeMismatch>(array.device == device, array.name, " lies in other memory than q; it must ",
                      "lie in that of the plan's device");
  check_rank(array, 1, "bytes");
  check<TypeMismatch>(array.type.bits == 8, array.name, " has elements of ", int{array.type.bits},
                      " bits; it must have bytes, as uint8");
  check(array.strides[0] == 1 || array.shape[0] <= 1, array.name, " has stride ", array.strides[0],
        "; it must be 1");
  return {static_cast<std::byte*>(array.data), static_cast<std::size_t>(array.shape[0])};
}

/// Runs `call`, whose workspace is `given` or, if that is None, the backend's; made ready first
/// if it is `fresh`. `lse` may be None.
void run_plan(const Plan& plan, Call& call, nb::handle out, nb::handle lse, nb::handle given,
              bool fresh) {
  const Arguments arguments = call.with_results(out, lse);
  // The workspace that was allocated would be refused first.
  if (arguments.q.device != plan.problem.device) check_arguments(plan.problem, arguments);
  const Stream stream = call.stream();
  if (!given.is_none()) {
    const auto workspace = bytes_of(call.take_workspace(given), plan.problem.device);
    const nb::gil_scoped_release released;
    (fresh ? run_fresh : run)(plan, arguments, workspace, stream);
    return;
  }
  const nb::gil_scoped_release released;
  run_once(plan, arguments, stream);
}

void initialise_workspace(const Plan& plan, nb::handle workspace, nb::handle stream) {
  CallStream queue(stream);
  const Array array = import_array("workspace", workspace, Access::kWrite, queue);
  const auto bytes = bytes_of(array, plan.problem.device);
  const nb::gil_scoped_release released;
  initialise(plan, bytes, queue.get());
}

nb::dict info() {
  nb::list names;
  for (const Backend* each : backends()) names.append(nb::str(each->name().data()));
  const Backend& chosen = backend();
  nb::dict facts;
  facts["version"] = LEANATTN_VERSION;
  facts["backends"] = names;
  facts["default"] = chosen.name();
  const std::string unavailable = chosen.unavailable();
  facts["machine"] = unavailable.empty() ? chosen.machine().description : unavailable;
  return facts;
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const InvalidArgument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const TypeMismatch& error) {
    PyErr_SetString(PyExc_TypeError, error.what());
  } catch (const Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void define_plan(nb::module_& module) {
  nb::class_<Plan>(module, "Plan")
      .def_ro("workspace_bytes", &Plan::workspace_bytes)
      .def_ro("num_threads", &Plan::num_threads)
      .def_prop_ro("num_workers", [](const Plan& plan) { return plan.partition.num_workers; })
      .def_prop_ro("partition", [](const Plan& plan) { return name_of(plan.partition.kind); })
      .def_prop_ro("backend", [](const Plan& plan) { return plan.backend->name(); })
      .def_prop_ro("kernel", [](const Plan& plan) { return plan.kernel.name; })
      .def_prop_ro("out_dtype",
                   [](const Plan& plan) { return numpy_name_of(plan.problem.out_type); })
      .def_prop_ro("on_host",
                   [](const Plan& plan) { return plan.problem.device.kind == Device::Kind::kHost; })
      .def("explain", [](const Plan& plan) { return explain(plan); });
}

/// The library of q, and the device that it lies on, None for host memory.
nb::tuple place_of(const Call& call) {
  const std::string_view library = name_of(call.library());
  if (call.on_host()) return nb::make_tuple(library, nb::none());
  return nb::make_tuple(library, call.arguments().q.device.index);
}

std::uintptr_t address_of(const Stream& stream) {
  return reinterpret_cast<std::uintptr_t>(stream.handle);
}

void define_call(nb::module_& module) {
  using nb::handle;
  const auto maybe = nb::arg().none();
  nb::class_<Call>(module, "Call")
      .def(
          "__init__",
          [](Call* self, handle q, handle k, handle v, handle lengths, handle stream,
             const nb::dict& keywords, const std::optional<std::string_view>& layout) {
            const Inputs inputs{q, k, v, lengths, stream};
            if (layout) {
              new (self) Call(inputs, keywords, *layout);
            } else {
              new (self) Call(inputs, keywords);
            }
          },
          maybe, maybe, maybe, maybe, maybe, nb::arg(), maybe)
      .def_prop_ro("out_shape", &Call::out_shape)
      .def_prop_ro("batch", &Call::batch)
      .def_prop_ro("capacity", &Call::capacity)
      .def_prop_ro("layout", [](const Call& call) { return call.hnd() ? "HND" : "NHD"; })
      .def_prop_ro("place", place_of)
      .def_prop_ro("stream", [](const Call& call) { return address_of(call.stream()); })
      .def_prop_ro("stream_given", &Call::stream_given)
      .def_prop_ro("lacks_lengths", &Call::lacks_lengths)
      .def("set_lengths", &Call::set_lengths);
}

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(translate);
  define_call(module);
  define_plan(module);
  module.attr("__version__") = LEANATTN_VERSION;
  module.attr("WORKSPACE_ALIGNMENT") = kWorkspaceAlignment;
  const auto given = nb::arg();
  const auto maybe = nb::arg().none();
  module.def("plan", plan_for, given, maybe, maybe, maybe, maybe);
  module.def("why_not", why_not, given, maybe);
  module.def("run", run_plan, given, given, given, maybe, maybe, given);
  module.def("initialise", initialise_workspace, given, maybe, maybe);
  module.def("check_no_gradient",
             nb::overload_cast<std::string_view, nb::handle>(check_no_gradient), given, maybe);
  module.def("stream_handle", [](nb::handle stream) { return address_of(stream_of(stream)); });
  module.def(
      "library_name", [](nb::handle array) { return name_of(library_of(array)); }, maybe);
  module.def("merge_two", merge_two);
  module.def("merge_parts", merge_parts);
  module.def("append", append);
  module.def("info", info);
}

}  // namespace leanattn::python
