// Any bytes as a problem. Either the library throws one of its errors, or the answer
// is right (where nothing was spoilt) and nothing outside of it was touched. It never
// crashes, and every error has a sentence.
#include <cstdio>
#include <cstring>

#include "fuzzed_spec.h"
#include "testing/check_case.h"

namespace {

using leanattn::Arguments;
using leanattn::Plan;
using leanattn::PlanOptions;
using leanattn::testing::Case;

void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  __builtin_trap();
}

// Numbers alone: plan and explain any Problem.
void plan_anything(FuzzedDataProvider& bytes) {
  const leanattn::Problem problem = leanattn::fuzz::make_problem(bytes);
  const Plan plan = leanattn::plan(problem, leanattn::fuzz::make_options(bytes));
  require(!explain(plan).empty(), "a plan without explanation");
  require(plan.partition.num_workers >= 1 && plan.num_threads >= 1, "a plan without workers");
}

// A valid problem must be answered right.
void run_valid(FuzzedDataProvider& bytes) {
  const Case problem = build_case(leanattn::fuzz::make_spec(bytes));
  const auto outcome = check_case(problem, leanattn::fuzz::make_options(bytes));
  if (outcome.message.starts_with("threw: ")) return;  // options that make no sense
  require(outcome.passed, outcome.message + "\n" + describe(problem));
}

// A spoilt one may be answered in any way that stays inside its memory.
void run_spoilt(FuzzedDataProvider& bytes) {
  Case problem = build_case(leanattn::fuzz::make_spec(bytes));
  const PlanOptions options = leanattn::fuzz::make_options(bytes);
  Arguments arguments = problem.arguments;
  const leanattn::Problem valid = problem_of(arguments, problem.rules());
  const bool plan_first = bytes.ConsumeBool();
  for (int count = bytes.ConsumeIntegralInRange(1, 3); count > 0; --count) {
    leanattn::fuzz::spoil(bytes, problem, arguments);
  }
  const Plan plan =
      leanattn::plan(plan_first ? valid : problem_of(arguments, problem.rules()), options);
  constexpr std::size_t kMostWorkspace = 64 << 20;
  if (plan.workspace_bytes > kMostWorkspace) return;
  const leanattn::testing::Buffer workspace((plan.workspace_bytes + 63) / 64 * 64);
  run(plan, arguments, workspace.bytes());
  require(problem.out.tail_intact(), "memory behind out was written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider bytes(data, size);
  try {
    switch (bytes.ConsumeIntegralInRange(0, 2)) {
      case 0: plan_anything(bytes); break;
      case 1: run_valid(bytes); break;
      default: run_spoilt(bytes); break;
    }
  } catch (const leanattn::Error& error) {
    require(std::strlen(error.what()) > 0, "an error without a sentence");
  }
  return 0;
}
