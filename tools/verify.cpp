// leanattn verify: random problems over the whole feature table against the
// double-precision reference.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "commands.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "terminal.h"
#include "testing/check_case.h"

namespace leanattn::tools {
namespace {

struct Options {
  std::int64_t cases = 1000;
  std::uint64_t seed = 1;
  std::string backend = "auto";
  std::string isa;
  bool keep_going = false;
  bool verbose = false;
};

constexpr const char* kFooter =
    R"(Case i is drawn from seed + i: lengths, heads, types, layouts, rules, partition and
workers. Unused memory is poisoned and every buffer ends at a guard page. A failing
case prints the one command that repeats it.

Examples:
  leanattn verify --cases 20000
  leanattn verify --cases 1 --seed 4711 --verbose
  leanattn verify --isa avx2)";

std::string repeat_command(const Options& options, std::uint64_t seed) {
  std::string command = fmt::format("leanattn verify --cases 1 --seed {}", seed);
  if (options.backend != "auto") command += " --backend " + options.backend;
  if (!options.isa.empty()) command += " --isa " + options.isa;
  return command;
}

void run_cases(const Options& options, Invocation& invocation) {
  check(options.cases >= 0, "--cases is ", options.cases, "; 0 or more is needed");
  // The library reads this when it first chooses an instruction set.
  if (!options.isa.empty()) ::setenv("LEANATTN_ISA", options.isa.c_str(), 1);
  const Backend& chosen = backend(options.backend);
  fmt::print("backend {}: {}\n", chosen.name(), chosen.machine().description);

  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t refused = 0;
  ProgressBar bar("verify", options.cases);
  for (std::int64_t i = 0; i < options.cases; ++i) {
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(i);
    const testing::Case problem = testing::make_case(seed);
    PlanOptions planned = testing::draw_options(seed);
    planned.backend = chosen.name();
    const testing::Outcome outcome = testing::check_case(problem, planned);
    outcome.passed ? ++passed : ++failed;
    refused += outcome.refused ? 1 : 0;
    bar.show(i + 1, failed > 0 ? fmt::format("{} failed", failed) : "");
    if (outcome.passed && !options.verbose) continue;
    bar.clear();
    fmt::print("{} seed {}: {}\n  {}\n  {}\n", outcome.passed ? "passed" : "FAILED", seed,
               outcome.passed ? outcome.comparison.worst : outcome.message,
               testing::describe(problem), testing::describe(planned));
    if (!outcome.plan.empty()) fmt::print("  {}\n", outcome.plan);
    if (!outcome.passed) fmt::print("  repeat: {}\n", repeat_command(options, seed));
    if (!outcome.passed && !options.keep_going && failed >= 20) {
      fmt::print("stopping after {} failures (--keep-going goes on)\n", failed);
      break;
    }
  }
  bar.clear();
  if (refused > 0) fmt::print("{} refused by the backend as unsupported\n", refused);
  fmt::print("{} passed, {} failed\n", passed, failed);
  if (failed > 0) invocation.exit_status = 1;
}

}  // namespace

void add_verify(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("verify", "check random problems against the double-precision reference");
  command->footer(kFooter);
  command->add_option("--cases", options->cases, "how many")->capture_default_str();
  command->add_option("--seed", options->seed, "the first case's seed")->capture_default_str();
  command->add_option("--backend", options->backend, "see leanattn info")->capture_default_str();
  command->add_option("--isa", options->isa,
                      "the widest instruction set to use, as LEANATTN_ISA (see leanattn info)");
  command->add_flag("--keep-going", options->keep_going, "do not stop after 20 failures");
  command->add_flag("--verbose", options->verbose, "describe passing cases too");
  command->callback([options, &invocation] { run_cases(*options, invocation); });
}

}  // namespace leanattn::tools
