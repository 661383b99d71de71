// See bench_measure.h.
#include "bench_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "answer.h"
#include "read_bandwidth.h"
#include "workspace.h"

namespace leanattn::tools {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

PlanOptions plan_options(const MeasureOptions& options, PartitionChoice partition,
                         std::int64_t num_splits = 0) {
  PlanOptions planned;
  planned.backend = options.backend;
  planned.partition = partition;
  planned.num_splits = num_splits;
  planned.num_threads = options.num_threads;
  const bool takes_workers =
      partition == PartitionChoice::kStreamK || partition == PartitionChoice::kAuto;
  planned.num_workers = takes_workers ? options.num_threads : 0;
  return planned;
}

// The partitions that compete on `problem`; one_tile first.
std::vector<Run> candidates(const Problem& problem, const MeasureOptions& options) {
  std::vector<Run> runs;
  const auto add = [&](std::string label, const PlanOptions& planned) {
    runs.push_back({std::move(label), plan(problem, planned), {}, 0, true});
  };
  add("one_tile", plan_options(options, PartitionChoice::kOneTile));
  std::set<std::int64_t> splits{2, 4, 8, 16, options.num_threads};
  if (options.quick) splits = {2, 4, options.num_threads};
  splits.erase(1);
  for (const std::int64_t count : splits) {
    add(fmt::format("fixed_split({})", count),
        plan_options(options, PartitionChoice::kFixedSplit, count));
  }
  add("stream_k", plan_options(options, PartitionChoice::kStreamK));
  add("auto", plan_options(options, PartitionChoice::kAuto));
  return runs;
}

double roundoff(ElementType type) {
  return type == ElementType::kFloat16    ? 0x1p-11
         : type == ElementType::kBFloat16 ? 0x1p-8
                                          : 0x1p-24;
}

// First-order error of a score: ‖q‖·‖k‖ is at most head_dim for values of [-1, 1).
double score_error(const Workload& workload) {
  return 0x1p-24 * 2 * std::sqrt(static_cast<double>(workload.head_dim));
}

double relative_error(const std::vector<double>& got, const std::vector<double>& wanted) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

bool lse_within(const Answer& got, const Answer& wanted, double delta) {
  for (std::size_t i = 0; i < wanted.lse.size(); ++i) {
    const double allowed = 2 * (delta + 0x1p-24 * (1 + std::fabs(wanted.lse[i])));
    if (!(std::fabs(got.lse[i] - wanted.lse[i]) <= 2 * allowed)) return false;
  }
  return true;
}

// Runs every candidate once and compares with the reference, or with one_tile where
// the reference would take too long. One of the two roundings of an output, P and
// sums: twice that is allowed, over the whole output as a vector.
void check_answers(Result& result, const Calls& calls) {
  constexpr double kMostReferenceSteps = 2e8;  // multiply-adds, about a second
  const Workload& workload = result.workload;
  const Arguments& call = calls[0];
  const double steps = static_cast<double>(workload.num_keys()) *
                       static_cast<double>(workload.num_q_heads * workload.q_len) * 2 *
                       static_cast<double>(workload.head_dim);
  Answer wanted;
  if (steps <= kMostReferenceSteps) {
    wanted = exact_answer(call, calls.rules());
    result.checked_against = "reference";
  } else {
    const Workspace workspace(result.runs.front().plan.workspace_bytes);
    run(result.runs.front().plan, call, workspace.bytes());
    wanted = read_answer(call);
    result.checked_against = "one_tile";
  }
  const double delta = score_error(workload);
  result.allowed_error = 2 * (2 * roundoff(result.type) + 2 * delta);
  for (Run& candidate : result.runs) {
    const Workspace workspace(candidate.plan.workspace_bytes);
    std::fill_n(static_cast<std::uint8_t*>(call.out.data),
                static_cast<std::size_t>(wanted.out.size()) *
                    static_cast<std::size_t>(size_of(result.type)),
                std::uint8_t{0xff});
    run(candidate.plan, call, workspace.bytes());
    const Answer got = read_answer(call);
    candidate.relative_error = relative_error(got.out, wanted.out);
    candidate.within =
        candidate.relative_error <= result.allowed_error && lse_within(got, wanted, delta);
  }
}

}  // namespace

const Run* Result::find(std::string_view label) const {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [&](const Run& run) { return run.label == label; });
  return found == runs.end() ? nullptr : &*found;
}

const Run* Result::best_fixed_split() const {
  const Run* best = nullptr;
  for (const Run& run : runs) {
    if (run.label.rfind("fixed_split", 0) != 0) continue;
    if (best == nullptr || run.times.median < best->times.median) best = &run;
  }
  return best;
}

bool Result::within() const {
  return std::all_of(runs.begin(), runs.end(), [](const Run& run) { return run.within; });
}

Result measure(const Workload& workload, ElementType type, std::int64_t copies,
               const Values& values, const MeasureOptions& options,
               const std::function<void(double)>& progress) {
  constexpr std::int64_t kMostRounds = 400;
  Calls calls(workload, type, copies, values);
  const Problem problem = problem_of(calls[0], calls.rules());
  Result result{workload, type, copies, {}, 0, candidates(problem, options), {}, {}};
  check_answers(result, calls);

  std::vector<Workspace> workspaces;
  for (const Run& candidate : result.runs) workspaces.emplace_back(candidate.plan.workspace_bytes);
  std::vector<std::vector<double>> times(result.runs.size());
  std::vector<std::vector<double>> reads(read_ways().size());
  const auto threads = static_cast<int>(options.num_threads);
  const Clock::time_point begin = Clock::now();
  for (std::int64_t round = -1; round < kMostRounds; ++round) {  // −1: warms up
    for (std::size_t way = 0; way < reads.size(); ++way) {
      const double seconds = read_seconds(calls.cache(calls.next()), threads, way);
      if (round >= 0) reads[way].push_back(seconds);
    }
    for (std::size_t i = 0; i < result.runs.size(); ++i) {
      const Arguments& call = calls[calls.next()];
      const Clock::time_point start = Clock::now();
      run(result.runs[i].plan, call, workspaces[i].bytes());
      if (round >= 0) times[i].push_back(seconds_since(start));
    }
    const double done = seconds_since(begin) / options.seconds;
    progress(
        std::min(done, static_cast<double>(round + 1) /
                           static_cast<double>(std::max<std::int64_t>(options.min_rounds, 1))));
    if (round + 1 >= options.min_rounds && done >= 1) break;
  }
  for (std::size_t i = 0; i < result.runs.size(); ++i) result.runs[i].times = times_of(times[i]);
  for (std::size_t way = 0; way < reads.size(); ++way) {
    const Times read = times_of(reads[way]);
    if (result.read_way.empty() || read.median < result.read.median) {
      result.read = read;
      result.read_way = read_ways()[way];
    }
  }
  return result;
}

std::vector<Overhead> measure_overhead(const MeasureOptions& options, ElementType type) {
  constexpr int kBatches = 41;
  constexpr int kCalls = 500;  // in a batch
  Workload workload;
  workload.lengths = {64};
  Values values(buffer_bytes(workload, type, 1), 1);
  values.set_type(type);
  const Calls calls(workload, type, 1, values);
  const Arguments& call = calls[0];
  const Problem problem = problem_of(call, calls.rules());

  std::vector<Overhead> overheads;
  const auto time = [&](std::string label, const auto& body) {
    std::vector<double> seconds;
    for (int batch = 0; batch < kBatches; ++batch) {
      const Clock::time_point start = Clock::now();
      for (int i = 0; i < kCalls; ++i) body();
      seconds.push_back(seconds_since(start) / kCalls);
    }
    overheads.push_back({std::move(label), times_of(seconds)});
  };
  const PlanOptions automatic = plan_options(options, PartitionChoice::kAuto);
  PlanOptions alone = automatic;
  alone.num_threads = alone.num_workers = 1;
  const PlanOptions shared = plan_options(options, PartitionChoice::kStreamK);
  for (const auto& [name, planned] : {std::pair{"1 thread", alone}, std::pair{"auto", automatic},
                                      std::pair{"stream_k, all threads", shared}}) {
    const Plan made = plan(problem, planned);
    const Workspace workspace(made.workspace_bytes);
    time(fmt::format("run ({})", name), [&] { run(made, call, workspace.bytes()); });
  }
  const Workspace workspace(plan(problem, automatic).workspace_bytes);
  time("plan + run (auto)",
       [&] { run(plan(problem_of(call, calls.rules()), automatic), call, workspace.bytes()); });
  time("decode (auto)", [&] { decode(call, calls.rules(), automatic); });
  return overheads;
}

}  // namespace leanattn::tools
