// Measures launch shapes of a device backend through the public calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "device_timer.h"
#include "leanattn/attention.h"

namespace leanattn::tools {

/// How a kernel is launched; what LEANATTN_CUDA_SHAPE and a tuning file say.
struct LaunchShape {
  int blocks = 1;    // thread blocks of an SM, at most
  int tile_n = 128;  // keys of a LeanTile
  int cluster = 1;   // thread blocks of a worker, where it has that many

  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

/// Those that `measure` compares.
[[nodiscard]] std::vector<LaunchShape> all_launch_shapes();

/// A kernel and how many bytes of keys and values its calls read.
struct TuneCase {
  ElementType type = ElementType::kBFloat16;
  std::int64_t head_dim = 128;
  std::int64_t v_head_dim = 128;
  std::int64_t row_tiles = 1;  // groups of 8 packed query rows
  std::int64_t megabytes = 0;  // 10^6 bytes, about
};

/// For each v_head_dim and number of row tiles that `backend` has a kernel for, and each
/// size: in this order, ascending.
[[nodiscard]] std::vector<TuneCase> tune_cases(const Backend& backend,
                                               const std::vector<std::int64_t>& megabytes);

struct TuneResult {
  TuneCase problem;
  LaunchShape best;
  double seconds = 0;        // of a call with it: the median
  double worst_seconds = 0;  // with the worst shape
};

/// Caches in device memory, and the measurements over them.
class Tuner {
 public:
  /// As much memory as calls of `most_megabytes` rotate over, or what there is.
  Tuner(const Backend& backend, DeviceTimer& timer, std::int64_t most_megabytes);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Whether there is memory for `tuned`.
  [[nodiscard]] bool fits(const TuneCase& tuned) const;
  /// Times all shapes turn by turn, for about `seconds`. Sets LEANATTN_CUDA_SHAPE meanwhile.
  [[nodiscard]] TuneResult measure(const TuneCase& tuned, double seconds);

 private:
  const Backend& backend_;
  DeviceTimer& timer_;
  std::int64_t bytes_ = 0;
  std::byte* caches_ = nullptr;
};

/// The text of a tuning file: a row for each result, reaching half way (of the logarithm)
/// to the next size; neighbours with the same shape are one row. `results` are in the order
/// of `tune_cases`.
[[nodiscard]] std::string tuning_text(const std::vector<TuneResult>& results,
                                      int compute_capability, const std::string& made_by);

}  // namespace leanattn::tools
