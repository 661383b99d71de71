// Which share of their time the SMs are busy during a call: from stamps that the thread
// blocks write at their start and end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "case_data.h"
#include "measure.h"

namespace leanattn::bench {

/// Medians over the calls of one partition. "Places" are the thread blocks that run at
/// once: where an SM holds one, the SMs.
struct Timeline {
  Column column;
  std::int64_t blocks = 0;   // of a call
  std::int64_t places = 0;   // that its blocks take, of those of the device
  std::int64_t machine = 0;  // places of the device
  double busy = 0;           // Σ (end − start) / (places · (last end − first start))
  double busy_machine = 0;   // the same of all places of the device
  double seconds = 0;        // last end − first start
  double clock_step = 0;     // smallest difference of two stamps: the clock's resolution

  [[nodiscard]] bool measured() const { return blocks > 0; }
};

/// Of stream_k, one_tile and fixed_split. Answers are not looked at: `measure` does.
[[nodiscard]] std::vector<Timeline> measure_timelines(const Case& shape, RandomBuffer& caches,
                                                      cudaStream_t stream);

/// The paper's 56 heads × 64k keys, and a few others.
[[nodiscard]] std::vector<Case> timeline_cases();

void print_timelines(const Case& shape, const std::vector<Timeline>& timelines);

}  // namespace leanattn::bench
