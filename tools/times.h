// What repeated measurements come to.
#pragma once

#include <cstdint>
#include <vector>

namespace leanattn::tools {

/// Seconds of repeated calls.
struct Times {
  double median = 0;
  double low = 0;          // 10th percentile
  double high = 0;         // 90th percentile
  std::int64_t count = 0;  // 0: not measured
};

[[nodiscard]] Times times_of(std::vector<double> seconds);

}  // namespace leanattn::tools
