// How a backend is chosen by name, and what a backend does unless it does otherwise.
#include <cstdlib>
#include <cstring>
#include <new>

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

std::byte* Backend::allocate(std::size_t bytes, const Stream&) const {
  return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kWorkspaceAlignment}));
}

void Backend::release(std::byte* memory, const Stream&) const noexcept {
  ::operator delete (memory, std::align_val_t{kWorkspaceAlignment});
}

void Backend::copy(void* to, const void* from, std::size_t bytes, const Stream&) const {
  std::memcpy(to, from, bytes);
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
