// Plans for device memory, made once for each problem: planning asks the driver many things,
// which takes longer than a call. Plans of host memory take a microsecond and are made anew.
#pragma once

#include <memory>

#include "leanattn/attention.h"

namespace leanattn::python {

/// leanattn::plan, or the plan that it made for the same problem and options before; the last
/// kMostPlans of them are kept. Throws as it does.
[[nodiscard]] std::shared_ptr<Plan> plan_of(const Problem& problem, const PlanOptions& options);

inline constexpr int kMostPlans = 64;

}  // namespace leanattn::python
