// See sm_timeline.h.
#include "sm_timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/timeline.h"

namespace leanattn::bench {
namespace {

constexpr std::int64_t kCalls = 23;
constexpr std::int64_t kWarmCalls = 3;

using Stamps = std::vector<std::int64_t>;  // [blocks][2]

/// One call as its stamps tell; blocks that wrote none (their kernel launched fewer) do not
/// count.
struct Span {
  double busy = 0;  // nanoseconds, of all blocks
  double length = 0;
};

Span span_of(const std::int64_t* stamps, std::int64_t blocks) {
  std::int64_t first = INT64_MAX;
  std::int64_t last = 0;
  Span span;
  for (std::int64_t i = 0; i < blocks; ++i) {
    const std::int64_t start = stamps[2 * i];
    const std::int64_t end = stamps[2 * i + 1];
    if (start == 0) continue;
    first = std::min(first, start);
    last = std::max(last, end);
    span.busy += static_cast<double>(end - start);
  }
  span.length = static_cast<double>(last - first);
  return span;
}

double median(std::vector<double> values) { return times_of(std::move(values)).median; }

/// The smallest difference of two of the stamps, nanoseconds.
double clock_step(Stamps stamps) {
  std::sort(stamps.begin(), stamps.end());
  std::int64_t least = INT64_MAX;
  for (std::size_t i = 1; i < stamps.size(); ++i) {
    const std::int64_t step = stamps[i] - stamps[i - 1];
    if (step > 0 && stamps[i - 1] > 0) least = std::min(least, step);
  }
  return static_cast<double>(least);
}

/// Turns the timeline off again however a scope is left.
struct TimelineOff {
  ~TimelineOff() { cuda::set_timeline(nullptr, 0); }
};

/// The stamps of calls that follow each other as closely as the host queues them.
Stamps run_stamped(const Plan& made, std::int64_t blocks, const CaseData& data, std::int64_t copies,
                   cudaStream_t stream) {
  const DeviceBuffer workspace(static_cast<std::int64_t>(made.workspace_bytes));
  const std::span<std::byte> bytes(workspace.data(), made.workspace_bytes);
  const Stream queue{stream};
  Stamps stamps(static_cast<std::size_t>(2 * blocks * kCalls));
  const DeviceBuffer memory(static_cast<std::int64_t>(stamps.size() * sizeof(std::int64_t)));
  check_cuda(cudaMemsetAsync(memory.data(), 0, static_cast<std::size_t>(memory.size()), stream));
  initialise(made, bytes, queue);
  const TimelineOff off;
  for (std::int64_t i = 0; i < kCalls; ++i) {
    cuda::set_timeline(memory.as<std::int64_t>() + 2 * blocks * i, blocks);
    run(made, data.arguments(i % copies), bytes, queue);
  }
  check_cuda(cudaMemcpyAsync(stamps.data(), memory.data(), static_cast<std::size_t>(memory.size()),
                             cudaMemcpyDeviceToHost, stream));
  check_cuda(cudaStreamSynchronize(stream));
  return stamps;
}

void fill_in(Timeline& timeline, const Stamps& stamps) {
  std::vector<double> busy;
  std::vector<double> length;
  for (std::int64_t i = kWarmCalls; i < kCalls; ++i) {
    const Span span = span_of(stamps.data() + 2 * timeline.blocks * i, timeline.blocks);
    busy.push_back(span.busy / (static_cast<double>(timeline.places) * span.length));
    length.push_back(span.length * 1e-9);
  }
  timeline.busy = median(std::move(busy));
  timeline.busy_machine =
      timeline.busy * static_cast<double>(timeline.places) / static_cast<double>(timeline.machine);
  timeline.seconds = median(std::move(length));
  timeline.clock_step = clock_step(stamps) * 1e-9;
}

}  // namespace

std::vector<Timeline> measure_timelines(const Case& shape, RandomBuffer& caches,
                                        cudaStream_t stream) {
  constexpr std::pair<const char*, PartitionChoice> kPartitions[] = {
      {"stream_k", PartitionChoice::kStreamK},
      {"one_tile", PartitionChoice::kOneTile},
      {"fixed_split", PartitionChoice::kFixedSplit}};
  const Rotation rotation = rotation_of(shape, caches.size());
  check<Error>(rotation.copies > 0, "the cache of ", shape.name, " takes ", shape.cache_bytes(),
               " bytes; there are ", caches.size());
  caches.set_type(shape.type, stream);
  const CaseData data(shape, rotation.copies, caches, stream);
  std::vector<Timeline> timelines;
  for (const auto& [label, partition] : kPartitions) {
    Timeline& timeline = timelines.emplace_back();
    timeline.column.label = label;
    make_plan(timeline.column, shape, data, partition);
    if (!timeline.column.plan) continue;
    const Plan& made = *timeline.column.plan;
    timeline.blocks = made.partition.num_workers * made.kernel.cluster;
    timeline.machine = made.kernel.num_workers;
    timeline.places = std::min(timeline.blocks, timeline.machine);
    fill_in(timeline, run_stamped(made, timeline.blocks, data, rotation.copies, stream));
  }
  return timelines;
}

std::vector<Case> timeline_cases() {
  std::vector<Case> cases;
  for (const Case& shape : peer_cases()) {
    for (const char* name :
         {"paper d64 H56 b1 ctx64k", "paper d64 H56 b1 ctx256k", "d128 MHA32 b1 ctx64k",
          "d128 GQA32/8 b1 ctx8k", "d128 GQA32/8 b64 ctx2k", "d128 GQA8/1 b1 ctx128k",
          "ragged 1x128k+31x1k GQA32/8", "ragged MHA32 d64 b8"}) {
      if (shape.name == name) cases.push_back(shape);
    }
  }
  return cases;
}

void print_timelines(const Case& shape, const std::vector<Timeline>& timelines) {
  for (const Timeline& timeline : timelines) {
    const bool first = &timeline == &timelines.front();
    fmt::print("{:<34} {:<12}", first ? shape.name : "", timeline.column.label);
    if (!timeline.measured()) {
      fmt::print(" {}\n", timeline.column.why_not);
      continue;
    }
    fmt::print(" {:>7} {:>4} of {:<5} {:>6.1f}% {:>8.1f}% {:>10.2f} {:>7.0f}\n", timeline.blocks,
               timeline.places, timeline.machine, 100 * timeline.busy, 100 * timeline.busy_machine,
               timeline.seconds * 1e6, timeline.clock_step * 1e9);
  }
}

}  // namespace leanattn::bench
