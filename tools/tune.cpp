// leanattn tune: measures how kernels are best launched on this machine's device, and
// writes the file that LEANATTN_TUNING names.
#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <vector>

#include "commands.h"
#include "leanattn/error.h"
#include "machine_facts.h"
#include "terminal.h"
#include "tune_measure.h"

namespace leanattn::tools {
namespace {

struct Options {
  std::string output = "leanattn-tuning.txt";
  double seconds = 120;
};

constexpr const char* kFooter =
    R"(For every head dim and number of query rows that has a kernel, and caches of 4 to 2048 MB,
the launch shapes take turns: 1 to 3 thread blocks of an SM, LeanTiles of 64, 128 or 256
keys, clusters of 1, 2, 4 or 8 thread blocks, where they differ. Times are medians of CUDA
graphs whose calls rotate over so many caches that none finds its keys in the L2.

A row of the file reads: compute capability, v_head_dim, row tiles (of 8 packed query rows)
and MB of keys and values up to which it serves; thread blocks of an SM, keys of a LeanTile,
thread blocks of a cluster; * is any. The first row that serves a call decides.

Examples:
  leanattn tune
  leanattn tune --seconds 30 --output h200.txt
  LEANATTN_TUNING=h200.txt leanattn verify --backend cuda)";

std::string text_of(const LaunchShape& shape) {
  return fmt::format("{} block{} an SM, LeanTiles of {} keys, clusters of {}", shape.blocks,
                     shape.blocks == 1 ? "" : "s", shape.tile_n, shape.cluster);
}

void print_row(const TuneResult& result) {
  const TuneCase& problem = result.problem;
  fmt::print("{} d{:<8} {:>2} rows {:>5} MB  {:>8.1f} µs, worst {:>8.1f}  {}\n",
             name_of(problem.type),
             problem.head_dim == problem.v_head_dim
                 ? fmt::format("{}", problem.head_dim)
                 : fmt::format("{}·{}", problem.head_dim, problem.v_head_dim),
             8 * problem.row_tiles, problem.megabytes, result.seconds * 1e6,
             result.worst_seconds * 1e6, text_of(result.best));
  std::fflush(stdout);
}

void write(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::trunc);
  stream << text;
  stream.close();
  check(!stream.fail(), "--output is '", path, "', which cannot be written");
}

void run_tune(const Options& options, const Invocation& invocation) {
  check(options.seconds > 0, "--seconds is ", options.seconds, "; more than 0 is needed");
  const Backend& cuda = backend("cuda");
  const std::string unavailable = cuda.unavailable();
  check<Unsupported>(unavailable.empty(), unavailable);
  // Before minutes are spent on it; what is in the file stays.
  check(std::ofstream(options.output, std::ios::app).is_open(), "--output is '", options.output,
        "', which cannot be written");
  const std::vector<std::int64_t> megabytes{4, 32, 128, 512, 2048};
  const std::vector<TuneCase> cases = tune_cases(cuda, megabytes);
  check<Unsupported>(!cases.empty(), "this build has no kernels for this device");
  fmt::print("{}\n", cuda.machine().description);

  const std::unique_ptr<DeviceTimer> timer = device_timer();
  Tuner tuner(cuda, *timer, megabytes.back());
  ProgressBar bar("tune", static_cast<std::int64_t>(cases.size()));
  std::vector<TuneResult> results;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    bar.show(static_cast<std::int64_t>(i), fmt::format("d{}", cases[i].head_dim));
    if (!tuner.fits(cases[i])) continue;
    results.push_back(tuner.measure(cases[i], options.seconds / static_cast<double>(cases.size())));
    bar.clear();
    print_row(results.back());
  }
  check<Error>(!results.empty(), "the device has too little memory to measure anything");
  write(options.output,
        tuning_text(results, timer->compute_capability(),
                    fmt::format("{}, {}, {}, commit {}", invocation.command_line,
                                cuda.machine().description, utc_now(), source_commit())));
  fmt::print("written to {}; LEANATTN_TUNING={} uses it\n", options.output, options.output);
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("tune", "measure how to launch kernels on this GPU");
  command->footer(kFooter);
  command->add_option("--output", options->output, "the file to write")->capture_default_str();
  command->add_option("--seconds", options->seconds, "for all measurements, about")
      ->capture_default_str();
  command->callback([options, &invocation] { run_tune(*options, invocation); });
}

}  // namespace leanattn::tools
