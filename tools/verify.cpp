// leanattn verify: random problems over the whole feature table against the
// double-precision reference.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "machine_facts.h"
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
workers. Unused memory is poisoned and every buffer ends at a guard page. Of a device
backend only what it has kernels for is drawn, and every case runs twice. A failing
case prints the one command that repeats it.

Examples:
  leanattn verify --cases 20000
  leanattn verify --cases 1 --seed 4711 --verbose
  leanattn verify --isa avx2
  leanattn verify --backend cuda --cases 20000)";

std::string repeat_command(const Options& options, std::uint64_t seed) {
  std::string command = fmt::format("leanattn verify --cases 1 --seed {}", seed);
  if (options.backend != "auto") command += " --backend " + options.backend;
  if (!options.isa.empty()) command += " --isa " + options.isa;
  return command;
}

// A case with its right answer.
struct Prepared {
  std::uint64_t seed = 0;
  std::optional<testing::Case> problem;
  testing::Expected expected;
};

// Cases [first, first + count), worked out by `num_threads` threads.
std::vector<Prepared> prepare(std::uint64_t first, std::int64_t count,
                              const testing::SpecLimits& limits, int num_threads) {
  std::vector<Prepared> cases(static_cast<std::size_t>(count));
  std::exception_ptr failure;
#pragma omp parallel for num_threads(num_threads) schedule(dynamic, 1)
  for (std::size_t i = 0; i < cases.size(); ++i) {
    try {
      cases[i].seed = first + i;
      cases[i].problem = testing::build_case(testing::draw_spec(cases[i].seed, limits));
      cases[i].expected = testing::expect(*cases[i].problem);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return cases;
}

// Runs cases one after another, counts them and reports those that fail.
class Verifier {
 public:
  Verifier(const Options& options, const Backend& chosen)
      : options_(options), chosen_(chosen), bar_("verify", options.cases) {}

  void check_one(const Prepared& prepared) {
    PlanOptions planned = testing::draw_options(prepared.seed, chosen_);
    const testing::Outcome outcome =
        testing::check_case(*prepared.problem, prepared.expected, planned);
    outcome.passed ? ++passed_ : ++failed_;
    refused_ += outcome.refused ? 1 : 0;
    bar_.show(passed_ + failed_, failed_ > 0 ? fmt::format("{} failed", failed_) : "");
    if (!outcome.passed || options_.verbose) report(prepared, planned, outcome);
  }

  [[nodiscard]] bool given_up() const { return failed_ >= 20 && !options_.keep_going; }

  /// Prints the counts. Returns whether all passed.
  bool finish() {
    bar_.clear();
    if (given_up()) fmt::print("stopped after {} failures (--keep-going goes on)\n", failed_);
    if (refused_ > 0) fmt::print("{} refused by the backend as unsupported\n", refused_);
    fmt::print("{} passed, {} failed\n", passed_, failed_);
    return failed_ == 0;
  }

 private:
  void report(const Prepared& prepared, const PlanOptions& planned,
              const testing::Outcome& outcome) {
    bar_.clear();
    fmt::print("{} seed {}: {}\n  {}\n  {}\n", outcome.passed ? "passed" : "FAILED", prepared.seed,
               outcome.passed && !outcome.refused ? outcome.comparison.worst : outcome.message,
               testing::describe(*prepared.problem), testing::describe(planned));
    if (!outcome.plan.empty()) fmt::print("  {}\n", outcome.plan);
    if (!outcome.passed) fmt::print("  repeat: {}\n", repeat_command(options_, prepared.seed));
  }

  const Options& options_;
  const Backend& chosen_;
  ProgressBar bar_;
  std::int64_t passed_ = 0;
  std::int64_t failed_ = 0;
  std::int64_t refused_ = 0;
};

void run_cases(const Options& options, Invocation& invocation) {
  check(options.cases >= 0, "--cases is ", options.cases, "; 0 or more is needed");
  // The library reads this when it first chooses an instruction set.
  if (!options.isa.empty()) ::setenv("LEANATTN_ISA", options.isa.c_str(), 1);
  const Backend& chosen = backend(options.backend);
  const std::string unavailable = chosen.unavailable();
  check<Unsupported>(unavailable.empty(), unavailable);
  fmt::print("backend {}: {}\n", chosen.name(), chosen.machine().description);

  // A device runs a case in a fraction of the time that the reference takes, so all cores
  // work on those. On a host they are busy with the case itself.
  const bool on_device = chosen.device_kind() == Device::Kind::kDevice;
  const int num_threads = on_device ? static_cast<int>(machine_facts().logical_cores) : 1;
  constexpr std::int64_t kCasesPerThread = 8;
  const std::int64_t most = on_device ? num_threads * kCasesPerThread : 1;
  const testing::SpecLimits limits = testing::limits_of(chosen);
  if (!limits.empty()) fmt::print("drawn of {}\n", testing::describe(limits));

  Verifier verifier(options, chosen);
  for (std::int64_t i = 0; i < options.cases && !verifier.given_up(); i += most) {
    const std::int64_t count = std::min(most, options.cases - i);
    for (const Prepared& prepared :
         prepare(options.seed + static_cast<std::uint64_t>(i), count, limits, num_threads)) {
      if (verifier.given_up()) break;
      verifier.check_one(prepared);
    }
  }
  if (!verifier.finish()) invocation.exit_status = 1;
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
