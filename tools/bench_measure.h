// Measures a workload: the answer first, then the times of all partitions and of
// plain reading, turn by turn, so that all see the same machine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench_data.h"
#include "bench_workload.h"
#include "leanattn/attention.h"
#include "times.h"

namespace leanattn::tools {

/// How long, and with what.
struct MeasureOptions {
  std::string backend = "auto";
  std::int64_t num_threads = 1;
  double seconds = 2;  // spent on a workload, about
  std::int64_t min_rounds = 7;
  bool quick = false;  // fewer fixed splits
};

/// A partition on a workload.
struct Run {
  std::string label;  // "fixed_split(4)"
  Plan plan;
  Times times;
  double relative_error = 0;  // ‖out − wanted‖ / ‖wanted‖
  bool within = true;         // that, and lse, are what rounding explains
};

struct Result {
  Workload workload;
  ElementType type = ElementType::kFloat32;
  std::int64_t copies = 1;
  std::string checked_against;  // "reference" or "one_tile"
  double allowed_error = 0;
  std::vector<Run> runs;
  std::string_view read_way;  // the best
  Times read;

  [[nodiscard]] const Run* find(std::string_view label) const;
  /// The quickest fixed_split with more than one worker per output tile, or null.
  [[nodiscard]] const Run* best_fixed_split() const;
  [[nodiscard]] bool within() const;
};

/// Measures one workload. `progress` is told the share done, of [0, 1].
[[nodiscard]] Result measure(const Workload& workload, ElementType type, std::int64_t copies,
                             const Values& values, const MeasureOptions& options,
                             const std::function<void(double)>& progress);

/// What a call costs beside its arithmetic: 64 keys, one head of 128.
struct Overhead {
  std::string label;
  Times times;  // of one call
};
[[nodiscard]] std::vector<Overhead> measure_overhead(const MeasureOptions& options,
                                                     ElementType type);

}  // namespace leanattn::tools
