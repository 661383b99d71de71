// leanattn_bench_gpu: attention on a CUDA GPU beside plain reads of the same bytes.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "check.h"
#include "measure.h"
#include "report.h"
#include "report_json.h"
#include "sm_timeline.h"

namespace leanattn::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::vector<std::string> groups = {"peers"};
  std::string filter;
  std::string type = "bf16";
  std::string layout = "nhd";
  std::int64_t page_size = 0;
  std::int64_t replays = 15;
  double seconds = 500;
  double paper_seconds = 200;
  double most_gb = 64;
  std::string json;
  std::string command;
  bool quick = false;
  bool list = false;
  bool timeline = false;
};

constexpr const char* kFooter =
    R"(Groups: peers, the shapes of the peers' measurements; paper, the grid of the paper's
evaluation (the three partitions only); features, what paging, batch invariance, more
queries and a prefill take.

A time is the median of replays of a CUDA graph over the calls it holds, which rotate
over so many caches that none finds its keys in the L2. The columns of a row and the
reads are replayed turn by turn. Answers are checked first, as they will be timed,
against a plain kernel in double precision; exit status 1 if one is wrong, 2 if the
device failed. --json is written as the run goes.

Examples:
  leanattn_bench_gpu --list --json cases.json        # needs no GPU; for peers.py
  leanattn_bench_gpu --group peers features --json ours.json
  leanattn_bench_gpu --group paper --json paper.json
  leanattn_bench_gpu --timeline --json timeline.json
  leanattn_bench_gpu --quick --type f16 --page-size 16)";

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool asked_for(const Options& options, std::string_view group) {
  return std::find(options.groups.begin(), options.groups.end(), group) != options.groups.end();
}

std::vector<Case> cases_of(const std::string& group, const Options& options) {
  if (options.timeline) return timeline_cases();
  if (group == "peers") return peer_cases();
  if (group == "features") return feature_cases();
  return paper_cases(static_cast<std::int64_t>(options.most_gb * 1e9));
}

std::vector<Case> chosen_cases(const Options& options) {
  std::vector<Case> cases;
  const std::vector<std::string> one_table = {"peers"};
  for (const std::string& group : options.timeline ? one_table : options.groups) {
    for (Case& shape : cases_of(group, options)) {
      if (options.quick && !options.timeline && !shape.quick) continue;
      if (shape.name.find(options.filter) == std::string::npos) continue;
      if (static_cast<double>(shape.cache_bytes()) > options.most_gb * 1e9) continue;
      shape.type = options.type == "bf16" ? ElementType::kBFloat16 : ElementType::kFloat16;
      shape.heads_first = options.layout == "hnd";
      if (group != "features") shape.page_size = options.page_size;
      cases.push_back(std::move(shape));
    }
  }
  check(!cases.empty(), "--filter is '", options.filter, "'; no case has that in its name");
  return cases;
}

MeasureOptions measure_options(const Options& options, const Case& shape) {
  MeasureOptions measured;
  measured.least_replays = measured.most_replays = options.quick ? 7 : options.replays;
  if (shape.group != "paper") return measured;
  measured.floors = measured.overlap = false;
  measured.least_replays = std::min<std::int64_t>(3, options.replays);
  measured.checked_copies = 1;
  if (shape.read_bytes() > 1'000'000'000) measured.least_calls = 3;
  return measured;
}

// As large as the largest rotation, as far as there is memory.
RandomBuffer allocate_caches(const std::vector<Case>& cases, const Options& options) {
  constexpr std::int64_t kLeftFree = std::int64_t{6} << 30;  // for queries, outputs, workspaces
  std::int64_t bytes = 16 << 20;
  for (const Case& shape : cases) {
    const Rotation rotation =
        rotation_of(shape, INT64_MAX, measure_options(options, shape).least_calls);
    bytes = std::max(bytes, rotation.copies * shape.cache_bytes());
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes));
  const std::int64_t room = static_cast<std::int64_t>(free_bytes) - kLeftFree;
  return RandomBuffer(std::max<std::int64_t>(std::min(bytes, room), 16 << 20));
}

// Measures all cases; returns the exit status.
int run_cases(const Options& options) {
  const std::vector<Case> cases = chosen_cases(options);
  check_cuda(cudaSetDevice(0));
  const Clock::time_point begin = Clock::now();
  Json json = preamble(options.command);
  const Owner<cudaStream_t> stream = make_stream();
  RandomBuffer caches = allocate_caches(cases, options);
  check_yardstick(caches, stream.get());
  fmt::print("{}\n", json["machine"].dump());

  std::vector<Result> results;
  int status = 0;
  const auto save = [&] {
    if (!options.json.empty()) write_json(options.json, json);
  };
  std::string group;
  double group_begin = 0;
  Clock::time_point saved = Clock::now();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& shape = cases[i];
    if (seconds_since(begin) > options.seconds) {
      fmt::print("--seconds is {}: {} cases left out\n", options.seconds, cases.size() - i);
      break;
    }
    if (shape.group != group) {
      group = shape.group;
      group_begin = seconds_since(begin);
      print_header(group);
    }
    MeasureOptions measured = measure_options(options, shape);
    if (group == "paper") {
      // What is left, shared by the cases that are left; they come smallest first.
      const auto left = std::count_if(cases.begin() + static_cast<std::ptrdiff_t>(i), cases.end(),
                                      [](const Case& other) { return other.group == "paper"; });
      measured.seconds = (options.paper_seconds - (seconds_since(begin) - group_begin)) /
                         static_cast<double>(left);
      measured.seconds = std::max(measured.seconds, 0.0);
    }
    try {
      results.push_back(measure(shape, caches, stream.get(), measured));
    } catch (const std::exception& error) {
      // Of this case only, unless the device is lost: then the next call says so.
      fmt::print("{}: {}\n", shape.name, error.what());
      json["failed"].push_back({{"name", shape.name}, {"why", error.what()}});
      save();
      static_cast<void>(cudaGetLastError());
      check_cuda(cudaDeviceSynchronize());
      status = 1;
      continue;
    }
    print_row(results.back());
    std::fflush(stdout);
    if (!results.back().right()) status = 1;
    json["results"].push_back(json_of(results.back()));
    if (seconds_since(saved) > 5) {
      save();
      saved = Clock::now();
    }
  }
  save();
  for (const char* name : {"peers", "features", "paper"}) {
    std::vector<Result> of_group;
    std::copy_if(results.begin(), results.end(), std::back_inserter(of_group),
                 [&](const Result& result) { return result.shape.group == name; });
    if (asked_for(options, name)) print_summary(name, of_group);
  }
  fmt::print("{:.0f} s in all\n", seconds_since(begin));
  return status;
}

// Measures which share of their time the SMs are busy; returns the exit status.
int run_timelines(const Options& options) {
  const std::vector<Case> cases = chosen_cases(options);
  check_cuda(cudaSetDevice(0));
  Json json = preamble(options.command);
  const Owner<cudaStream_t> stream = make_stream();
  RandomBuffer caches = allocate_caches(cases, options);
  fmt::print(
      "{}\nbusy: time of all thread blocks / (places · (last end − first start)), where places\n"
      "are the blocks that run at once: those that the call takes, or those of the device.\n"
      "Stamps are the device's global clock, which moves in steps of 32 ns to 1 µs, depending\n"
      "on the device: a share is as exact as a step beside the span.\n\n",
      json["machine"].dump());
  fmt::print("{:<34} {:<12} {:>7} {:>13} {:>7} {:>9} {:>10} {:>7}\n", "case", "partition", "blocks",
             "places", "busy", "of device", "span, µs", "step, ns");
  for (const Case& shape : cases) {
    const std::vector<Timeline> timelines = measure_timelines(shape, caches, stream.get());
    print_timelines(shape, timelines);
    std::fflush(stdout);
    json["results"].push_back(json_of(shape, timelines));
  }
  if (!options.json.empty()) write_json(options.json, json);
  return 0;
}

void add_options(CLI::App& app, Options& options) {
  app.footer(kFooter);
  app.add_option("--group", options.groups, "peers, paper, features; several may be named")
      ->check(CLI::IsMember({"peers", "paper", "features"}))
      ->capture_default_str();
  app.add_option("--filter", options.filter, "only cases with this in their name");
  app.add_option("--type", options.type, "bf16 or f16")
      ->check(CLI::IsMember({"bf16", "f16"}))
      ->capture_default_str();
  app.add_option("--layout", options.layout,
                 "nhd: heads of a token side by side; hnd: tokens of a head")
      ->check(CLI::IsMember({"nhd", "hnd"}))
      ->capture_default_str();
  app.add_option("--page-size", options.page_size,
                 "keys of a page, pages in random order (0: contiguous); not of features")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--replays", options.replays, "of every graph; paper: at most")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "start no case after so long")
      ->capture_default_str();
  app.add_option("--paper-seconds", options.paper_seconds, "for the cases of paper, about")
      ->capture_default_str();
  app.add_option("--max-gb", options.most_gb, "largest cache")->capture_default_str();
  app.add_option("--json", options.json, "also write everything to this file");
  app.add_flag("--quick", options.quick, "a few cases, fewer replays");
  app.add_flag("--list", options.list, "show the cases; with --json, write them");
  app.add_flag("--timeline", options.timeline,
               "instead: the share of their time that SMs are busy, on cases of its own")
      ->excludes("--group");
}

int list_cases(const Options& options) {
  const std::vector<Case> cases = chosen_cases(options);
  print_cases(cases);
  if (!options.json.empty()) write_json(options.json, json_of_cases(cases));
  return 0;
}

}  // namespace
}  // namespace leanattn::bench

int main(int argc, char** argv) {
  using namespace leanattn::bench;
  CLI::App app{"Attention on a CUDA GPU beside plain reads of the same bytes"};
  Options options;
  for (int i = 0; i < argc; ++i) options.command += (i > 0 ? " " : "") + std::string(argv[i]);
  add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.list) return list_cases(options);
    return options.timeline ? run_timelines(options) : run_cases(options);
  } catch (const CudaError& error) {
    fmt::print(stderr, "leanattn_bench_gpu: the device failed: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "leanattn_bench_gpu: {}\n", error.what());
    return 1;
  }
}
