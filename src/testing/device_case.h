// A case in the memory of a backend: its buffers copied there for a run, the answer
// copied back into them, so that every look at a case is the same for all backends.
#pragma once

#include <cstdint>

#include "leanattn/attention.h"
#include "testing/device_mirror.h"
#include "testing/random_case.h"

namespace leanattn::testing {

class DeviceCase {
 public:
  /// Copies `problem`, which must outlive this, with `out` and `lse` as they are.
  DeviceCase(const Case& problem, const Backend& backend);

  /// The call, on the backend's device.
  [[nodiscard]] const Arguments& arguments() const { return arguments_; }

  /// Fills `out` and `lse` with NaN again, here and in the case.
  void reset_output() const;
  /// Copies `out`, `lse` and what lies behind them into the case.
  void fetch_output() const;
  /// Whether the inputs, here and in the case, are what they were.
  [[nodiscard]] bool inputs_intact() const;

 private:
  const Case& problem_;
  std::uint64_t input_hash_;
  DeviceMirror mirror_;
  Arguments arguments_;
};

/// The problem that a case poses in memory of `backend`. On a device the capacity stands
/// for the lengths and the number of queries for those of a ragged sequence, as anywhere;
/// but a bias and a tree mask are only as large as the case's own maxima.
[[nodiscard]] Problem problem_on(const Backend& backend, const Case& problem);

/// `decode` with options.backend on a case's host memory; the answer lands in the case.
void decode_case(const Case& problem, const PlanOptions& options);

}  // namespace leanattn::testing
