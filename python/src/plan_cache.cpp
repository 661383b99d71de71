#include "plan_cache.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <tuple>

namespace leanattn::python {
namespace {

// Every field takes part: the bindings below do not compile where one is added or left out.

auto fields_of(const ScoreRules& rules) {
  const auto& [scale, softcap, window] = rules;
  const auto& [causal, left, right] = window;
  return std::tie(scale, softcap, causal, left, right);
}

auto fields_of(const Problem& problem) {
  const auto& [batch, max_q_len, num_queries, num_q_heads, num_kv_heads, head_dim, v_head_dim,
               max_kv_len, q_type, k_type, v_type, out_type, layout, page_size, ragged_q, rules,
               has_sinks, has_alibi, has_bias, has_tree_mask, device] = problem;
  return std::tuple_cat(
      std::tie(batch, max_q_len, num_queries, num_q_heads, num_kv_heads, head_dim, v_head_dim,
               max_kv_len, q_type, k_type, v_type, out_type, layout, page_size, ragged_q, has_sinks,
               has_alibi, has_bias, has_tree_mask, device),
      fields_of(rules));
}

/// Without the backend, whose name may mean another one later.
auto fields_of(const PlanOptions& options) {
  const auto& [backend, partition, num_splits, num_workers, num_threads, batch_invariant, checked] =
      options;
  static_cast<void>(backend);
  return std::tie(partition, num_splits, num_workers, num_threads, batch_invariant, checked);
}

struct Entry {
  PlanOptions options;
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
  const std::lock_guard lock(mutex);
  const auto same = std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.plan->backend == backend && fields_of(entry.plan->problem) == fields_of(problem) &&
           fields_of(entry.options) == fields_of(options);
  });
  if (same != entries.end()) {
    entries.splice(entries.begin(), entries, same);
    return same->plan;
  }
  Entry made{options, std::make_shared<Plan>(plan(problem, options))};
  made.options.backend = {};  // it views what the caller holds
  entries.push_front(std::move(made));
  if (entries.size() > static_cast<std::size_t>(kMostPlans)) entries.pop_back();
  return entries.front().plan;
}

}  // namespace leanattn::python
