// Whether answers are right, on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "case_data.h"

namespace leanattn::bench {

inline constexpr double kAllowedError = 5e-3;  // ‖out − wanted‖ / ‖wanted‖ of bf16

/// The wanted outputs of the first `copies` copies of a case, by `plain_attention`.
class Wanted {
 public:
  Wanted(const Case& shape, const CaseData& data, std::int64_t copies, cudaStream_t stream);

  /// The largest ‖out − wanted‖ / ‖wanted‖ of those copies; NaN if an element is. Waits
  /// for `stream`.
  [[nodiscard]] double error(const CaseData& data, cudaStream_t stream) const;
  [[nodiscard]] std::int64_t copies() const { return copies_; }

 private:
  Case shape_;
  std::int64_t copies_;
  DeviceBuffer wanted_, sums_;
};

/// Holds `plain_attention` against leanattn::reference on small cases; throws Error, saying
/// which, unless they agree to 1e-5.
void check_yardstick(RandomBuffer& caches, cudaStream_t stream);

}  // namespace leanattn::bench
