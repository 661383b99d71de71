// Measures a case: every answer first, then the times of all columns turn by turn.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "case.h"
#include "case_data.h"
#include "leanattn/attention.h"
#include "read_kernels.h"
#include "timing.h"

namespace leanattn::bench {

/// What a run measures beside leanattn's own choice.
struct MeasureOptions {
  std::int64_t least_replays = 15;
  std::int64_t most_replays = 15;
  std::int64_t least_calls = 8;  // of a graph
  std::int64_t checked_copies = 2;
  double seconds = 1e9;  // for the replays of a case, about, once there are the least
  bool floors = true;    // plain reads
  bool overlap = true;   // calls that may start early
};

/// One way of calling attention on a case.
struct Column {
  std::string label;  // "auto", "overlap", "one_tile", "fixed_split"
  std::optional<Plan> plan;
  std::string why_not;  // where there is no plan, or the answer is wrong
  double error = 0;     // relative, of the graph that is timed
  Times times;          // of a call; count 0 where `why_not` says why
};

struct Floor {
  ReadWay way = ReadWay::kPlain;
  Times times;  // of a read of as many bytes as a call reads
};

struct Result {
  Case shape;
  Rotation rotation;
  std::vector<Floor> floors;
  std::vector<Column> columns;

  /// Medians in seconds; 0 where there is none.
  [[nodiscard]] double seconds(std::string_view label) const;
  [[nodiscard]] double plain_read() const;
  [[nodiscard]] double best_read() const;
  /// Whether every answer that was computed was right.
  [[nodiscard]] bool right() const;
};

/// Gives `column` the plan for a partition, or says why there is none.
void make_plan(Column& column, const Case& shape, const CaseData& data, PartitionChoice partition);

/// Throws CudaError where the device fails, and Error where not one cache fits.
[[nodiscard]] Result measure(const Case& shape, RandomBuffer& caches, cudaStream_t stream,
                             const MeasureOptions& options);

}  // namespace leanattn::bench
