#include "plan_cache.h"

#include <algorithm>
#include <list>
#include <mutex>

namespace leanattn::python {
namespace {

struct Entry {
  PlanOptions options;  // without the backend, whose name may mean another one later
  std::shared_ptr<Plan> plan;
};

}  // namespace

std::shared_ptr<Plan> plan_of(const Problem& problem, const PlanOptions& options) {
  if (problem.device.kind == Device::Kind::kHost) {
    return std::make_shared<Plan>(plan(problem, options));
  }
  static std::list<Entry> entries;  // the last used in front
  static std::mutex mutex;
  const Backend* backend = &leanattn::backend(options.backend, problem.device);
  PlanOptions others = options;
  others.backend = {};
  const std::lock_guard lock(mutex);
  const auto same = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.plan->backend == backend && entry.plan->problem == problem &&
           entry.options == others;
  });
  if (same != entries.end()) {
    entries.splice(entries.begin(), entries, same);
    return same->plan;
  }
  entries.push_front({others, std::make_shared<Plan>(plan(problem, options))});
  if (entries.size() > static_cast<std::size_t>(kMostPlans)) entries.pop_back();
  return entries.front().plan;
}

}  // namespace leanattn::python
