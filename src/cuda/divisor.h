// Division by a number that a call knows beforehand: a multiplication and a shift on the
// device, where an integer division is a hundred cycles.
//
// Granlund and Montgomery, "Division by invariant integers using multiplication"
// (PLDI 1994), figure 4.1: exact for every dividend below 2^32; here they are below 2^31.
#pragma once

#include <cstdint>

#include "leanattn/partition.h"

namespace leanattn::cuda {

class Divisor {
 public:
  Divisor() = default;
  /// `value` ≥ 1.
  explicit Divisor(std::int32_t value) : value_(value) {
    while ((std::uint64_t{1} << shift_) < static_cast<std::uint64_t>(value)) ++shift_;
    const std::uint64_t excess = (std::uint64_t{1} << shift_) - static_cast<std::uint64_t>(value);
    multiplier_ =
        static_cast<std::uint32_t>((excess << 32) / static_cast<std::uint64_t>(value) + 1);
  }

  [[nodiscard]] LEANATTN_HOST_DEVICE std::int32_t value() const { return value_; }

  friend LEANATTN_HOST_DEVICE std::int32_t operator/(std::int32_t dividend,
                                                     const Divisor& divisor) {
    const auto n = static_cast<std::uint32_t>(dividend);
    const auto high =
        static_cast<std::uint32_t>((static_cast<std::uint64_t>(n) * divisor.multiplier_) >> 32);
    return static_cast<std::int32_t>((n + high) >> divisor.shift_);
  }
  friend LEANATTN_HOST_DEVICE std::int32_t operator%(std::int32_t dividend,
                                                     const Divisor& divisor) {
    return dividend - dividend / divisor * divisor.value_;
  }

 private:
  std::int32_t value_ = 1;
  std::uint32_t multiplier_ = 1;
  std::uint32_t shift_ = 0;
};

}  // namespace leanattn::cuda
