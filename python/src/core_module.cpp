// The extension leanattn._core: calls, plans and what stands beside them. The functions
// that people use, with their documentation, are Python, in leanattn/*.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <exception>
#include <memory>
#include <span>
#include <string>

#include "array.h"
#include "call.h"
#include "leanattn/attention.h"
#include "options.h"
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

Problem problem_for(const Call& call, const Options& options) {
  Arguments arguments = call.arguments();
  arguments.out.type = options.out_type.value_or(arguments.q.type);
  Problem problem = problem_of(arguments, options.rules);
  if (options.max_kv_len) problem.max_kv_len = *options.max_kv_len;
  if (options.max_q_len) {
    check(problem.ragged_q, "max_q_len is ", *options.max_q_len,
          "; it must be None without q_offsets, where q has q_len queries for each sequence");
    problem.max_q_len = *options.max_q_len;
  }
  return problem;
}

Plan plan_for(const Call& call, const nb::dict& values) {
  const Options options(values);
  return plan(problem_for(call, options), options.plan_options);
}

nb::object why_not(const Call& call, const nb::dict& values) {
  try {
    static_cast<void>(plan_for(call, values));
    return nb::none();
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

/// Runs with `objects`: out, lse and workspace, the latter two of which may be None.
void run_plan(const Plan& plan, const Call& call, const nb::dict& objects) {
  NamedArrays named(objects);
  const Arguments arguments = call.with_results(named);
  const Array* given = named.find("workspace", Access::kWrite);
  std::span<std::byte> workspace;
  if (given != nullptr) workspace = bytes_of(*given, plan.problem.device);
  const nb::gil_scoped_release released;
  if (given != nullptr) {
    initialise(plan, workspace);
    run(plan, arguments, workspace);
    return;
  }
  const auto release = [&](std::byte* memory) { plan.backend->release(memory, {}); };
  const std::unique_ptr<std::byte, decltype(release)> memory(
      plan.backend->allocate(plan.workspace_bytes, {}), release);
  workspace = {memory.get(), plan.workspace_bytes};
  initialise(plan, workspace);
  run(plan, arguments, workspace);
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
      .def("explain", [](const Plan& plan) { return explain(plan); });
}

}  // namespace

NB_MODULE(_core, module) {
  nb::register_exception_translator(translate);
  nb::class_<Call>(module, "Call")
      .def(nb::init<std::string_view, nb::dict>())
      .def_prop_ro("out_shape", &Call::out_shape)
      .def_prop_ro("capacity", &Call::capacity)
      .def_prop_ro("on_host", [](const Call& call) {
        return call.arguments().q.device.kind == Device::Kind::kHost;
      });
  define_plan(module);
  module.attr("__version__") = LEANATTN_VERSION;
  module.attr("WORKSPACE_ALIGNMENT") = kWorkspaceAlignment;
  module.def("plan", plan_for);
  module.def("why_not", why_not);
  module.def("run", run_plan);
  module.def("merge_two", merge_two);
  module.def("merge_parts", merge_parts);
  module.def("append", append);
  module.def("info", info);
}

}  // namespace leanattn::python
