// Runs a case on a backend and looks at everything that must hold: the answer, the
// canaries, the inputs, the workspace's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "leanattn/attention.h"
#include "testing/compare.h"
#include "testing/device_case.h"
#include "testing/random_case.h"

namespace leanattn::testing {

/// What came of running a case.
struct Outcome {
  bool passed = true;
  bool refused = false;  // the backend does not compute it; `message` says why
  std::string message;   // what is wrong, in one line; empty if passed
  std::string plan;      // what ran
  Comparison comparison;
};

/// Plans and runs `problem`, copied to the backend's memory: out and lse start as NaN, the
/// workspace has the exact size, starts as NaN and ends at a canary and, on a host, a page
/// without access; on a device it serves twice, and must give the same bits. Fails if
/// the answer is off, anything outside of out and lse changed, or an error is
/// thrown. A backend's refusal is reported, not failed.
[[nodiscard]] Outcome check_case(const Case& problem, const Expected& expected,
                                 const PlanOptions& options = {});
[[nodiscard]] Outcome check_case(const Case& problem, const PlanOptions& options = {});

/// Runs `plan`, made for problem_on its backend, on the case as check_case does, without
/// comparing the answer. Returns what else is wrong, or nothing.
[[nodiscard]] std::string run_guarded(const Case& problem, const Plan& plan);

/// The bytes of `out` and `lse` that stand in the case.
[[nodiscard]] std::vector<std::byte> output_bytes(const Case& problem);

/// Random options for `backend`, drawn from the seed of a case: any partition, from 1 to
/// 132 workers.
[[nodiscard]] PlanOptions draw_options(std::uint64_t seed,
                                       const Backend& backend = leanattn::backend());

/// One line that names every option.
[[nodiscard]] std::string describe(const PlanOptions& options);

}  // namespace leanattn::testing
