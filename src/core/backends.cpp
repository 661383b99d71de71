// The list of backends in this build, and how one is chosen by name.
#include <array>
#include <cstdlib>

#include "cpu/cpu_backend.h"
#include "leanattn/attention.h"
#include "leanattn/backend.h"
#include "leanattn/error.h"

namespace leanattn {
namespace {

bool reads(const Backend& backend, Device device) { return backend.device_kind() == device.kind; }

std::string names() {
  std::string list;
  for (const Backend* backend : backends()) {
    list += (list.empty() ? "" : ", ");
    list += backend->name();
  }
  return list;
}

}  // namespace

void Backend::begin(const Plan&, const Arguments&, std::span<std::byte>) const {
  throw Unsupported(
      concat("backend ", name(), " starts its own workers; begin and work are for CPU backends"));
}

void Backend::work(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
                   std::int64_t) const {
  begin(plan, arguments, workspace);
}

std::span<const Backend* const> backends() {
  static const std::array<const Backend*, 1> list{&cpu::cpu_backend()};
  return list;
}

const Backend& backend(std::string_view name, Device device) {
  if (name == "auto") {
    if (const char* chosen = std::getenv("LEANATTN_BACKEND"); chosen != nullptr && *chosen != 0) {
      check(std::string_view(chosen) != "auto", "LEANATTN_BACKEND is auto; allowed are ", names());
      return backend(chosen, device);
    }
    for (const Backend* candidate : backends()) {
      if (reads(*candidate, device)) return *candidate;
    }
    throw Unsupported("the tensors are in device memory; this build has no backend that reads it");
  }
  for (const Backend* candidate : backends()) {
    if (candidate->name() == name) return *candidate;
  }
  throw InvalidArgument(concat("backend is ", name, "; this build has ", names()));
}

}  // namespace leanattn
