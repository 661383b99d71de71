// See measure.h.
#include "measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "check.h"

namespace leanattn::bench {
namespace {

constexpr double kWarmSeconds = 0.02;  // of replays that are not counted

struct Way {
  const char* label;
  PartitionChoice partition;
  Overlap overlap;
};
constexpr Way kWays[] = {
    {"auto", PartitionChoice::kAuto, Overlap::kNone},
    {"overlap", PartitionChoice::kAuto, Overlap::kCache},
    {"one_tile", PartitionChoice::kOneTile, Overlap::kNone},
    {"fixed_split", PartitionChoice::kFixedSplit, Overlap::kNone},
};

/// A column with what its calls need, and their graph.
struct Prepared {
  DeviceBuffer workspace;
  Owner<cudaGraphExec_t> graph;
};

// The graph of a column's calls, its answers checked as it will be timed: all calls one
// after the other, on outputs that were NaN.
Prepared prepare_calls(Column& column, Overlap overlap, const CaseData& data,
                       const Rotation& rotation, const Wanted& wanted, cudaStream_t stream) {
  const Plan& made = *column.plan;
  Prepared prepared{DeviceBuffer(static_cast<std::int64_t>(made.workspace_bytes)), {}};
  const std::span<std::byte> workspace(prepared.workspace.data(), made.workspace_bytes);
  const Stream queue{stream, overlap};
  initialise(made, workspace, Stream{stream});
  std::vector<Arguments> calls;
  for (std::int64_t copy = 0; copy < rotation.copies; ++copy) {
    calls.push_back(data.arguments(copy));
  }
  // Once outside of a capture: loads the kernel, and fails where it is to blame.
  run(made, calls[0], workspace, queue);
  check_cuda(cudaGetLastError());
  check_cuda(cudaStreamSynchronize(stream));
  prepared.graph = capture(stream, [&] {
    for (std::int64_t i = 0; i < rotation.calls; ++i) {
      run(made, calls[static_cast<std::size_t>(i % rotation.copies)], workspace, queue);
    }
  });
  data.poison(stream);
  check_cuda(cudaGraphLaunch(prepared.graph.get(), stream));
  column.error = wanted.error(data, stream);
  if (!(column.error <= kAllowedError)) {
    column.why_not =
        fmt::format("WRONG ANSWER: off by {:.2e}, {:.0e} is allowed", column.error, kAllowedError);
  }
  return prepared;
}

Owner<cudaGraphExec_t> read_graph(ReadWay way, const Case& shape, const CaseData& data,
                                  const Rotation& rotation, void* sink, cudaStream_t stream) {
  return capture(stream, [&] {
    for (std::int64_t i = 0; i < rotation.calls; ++i) {
      read(way, data.cache(i % rotation.copies), shape.read_bytes(), sink, stream);
    }
  });
}

// Replays all graphs turn by turn, and gives each its `Times` of a call.
void time_graphs(std::span<const cudaGraphExec_t> graphs, std::span<Times* const> times,
                 const Rotation& rotation, const MeasureOptions& options, cudaStream_t stream) {
  double round_seconds = 0;  // of the first round, which warms up
  for (const auto& of_graph : replay(graphs, 1, stream)) round_seconds += of_graph.front();
  const auto rounds_in = [&](double seconds) {
    return static_cast<std::int64_t>(std::min(seconds / std::max(round_seconds, 1e-6), 1e6));
  };
  const std::int64_t warm = std::min<std::int64_t>(rounds_in(kWarmSeconds), 50);
  const std::int64_t rounds = std::clamp(rounds_in(options.seconds) - warm, options.least_replays,
                                         std::max(options.least_replays, options.most_replays));
  auto seconds = replay(graphs, warm + rounds, stream);
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    seconds[i].erase(seconds[i].begin(), seconds[i].begin() + warm);
    for (double& value : seconds[i]) value /= static_cast<double>(rotation.calls);
    *times[i] = times_of(std::move(seconds[i]));
  }
}

}  // namespace

void make_plan(Column& column, const Case& shape, const CaseData& data, PartitionChoice partition) {
  try {
    Problem problem = problem_of(data.arguments(0), shape.rules());
    problem.max_kv_len = shape.longest();
    PlanOptions options;
    options.backend = "cuda";
    options.partition = partition;
    options.batch_invariant = shape.batch_invariant;
    column.plan = plan(problem, options);
  } catch (const Error& error) {
    column.why_not = error.what();
  }
}

double Result::seconds(std::string_view label) const {
  for (const Column& column : columns) {
    if (column.label == label) return column.times.median;
  }
  return 0;
}

double Result::plain_read() const {
  for (const Floor& read : floors) {
    if (read.way == ReadWay::kPlain) return read.times.median;
  }
  return 0;
}

double Result::best_read() const {
  double best = plain_read();
  for (const Floor& read : floors) best = std::min(best, read.times.median);
  return best;
}

bool Result::right() const {
  return std::all_of(columns.begin(), columns.end(), [](const Column& column) {
    return !column.plan || column.error <= kAllowedError;
  });
}

Result measure(const Case& shape, RandomBuffer& caches, cudaStream_t stream,
               const MeasureOptions& options) {
  Result result{shape, rotation_of(shape, caches.size(), options.least_calls), {}, {}};
  const Rotation& rotation = result.rotation;
  check<Error>(rotation.copies > 0, "the cache of ", shape.name, " takes ", shape.cache_bytes(),
               " bytes; there are ", caches.size());
  caches.set_type(shape.type, stream);
  const CaseData data(shape, rotation.copies, caches, stream);
  const Wanted wanted(shape, data, std::min(options.checked_copies, rotation.copies), stream);
  const DeviceBuffer sink(16);

  for (const ReadWay way : kReadWays) {
    if (options.floors && prepare(way)) result.floors.push_back({way, {}});
  }
  std::vector<Prepared> prepared;
  for (const Way& way : kWays) {
    if (way.overlap != Overlap::kNone && !options.overlap) continue;
    Column column;
    column.label = way.label;
    make_plan(column, shape, data, way.partition);
    prepared.emplace_back();
    if (column.plan) {
      prepared.back() = prepare_calls(column, way.overlap, data, rotation, wanted, stream);
    }
    result.columns.push_back(std::move(column));
  }

  std::vector<Owner<cudaGraphExec_t>> reads;
  std::vector<cudaGraphExec_t> graphs;
  std::vector<Times*> times;
  for (Floor& floor : result.floors) {
    reads.push_back(read_graph(floor.way, shape, data, rotation, sink.data(), stream));
    graphs.push_back(reads.back().get());
    times.push_back(&floor.times);
  }
  for (std::size_t i = 0; i < prepared.size(); ++i) {
    if (!result.columns[i].why_not.empty()) continue;
    graphs.push_back(prepared[i].graph.get());
    times.push_back(&result.columns[i].times);
  }
  if (!graphs.empty()) time_graphs(graphs, times, rotation, options, stream);
  return result;
}

}  // namespace leanattn::bench
