// float16 and bfloat16 as bit patterns: conversions to and from float, round to
// nearest even, NaN kept NaN; and loads and stores of any floating ElementType.
#pragma once

#include <bit>
#include <cstdint>

#include "leanattn/tensor.h"

namespace leanattn {

[[nodiscard]] constexpr float float_of_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

[[nodiscard]] constexpr std::uint16_t bfloat16_of_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // quiet NaN
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

[[nodiscard]] constexpr float float_of_float16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent == 0) {  // zero or subnormal: mantissa · 2^-24, exact in float
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

[[nodiscard]] constexpr std::uint16_t float16_of_float(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);   // NaN
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // ≥ 65520
  if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// Element `i` of `data`, as float. `type` is one of the floating types.
[[nodiscard]] inline float load_float(const void* data, ElementType type, std::int64_t i) {
  switch (type) {
    case ElementType::kFloat16: return float_of_float16(static_cast<const std::uint16_t*>(data)[i]);
    case ElementType::kBFloat16:
      return float_of_bfloat16(static_cast<const std::uint16_t*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

/// Stores `value`, rounded to `type`, as element `i` of `data`.
inline void store_float(void* data, ElementType type, std::int64_t i, float value) {
  switch (type) {
    case ElementType::kFloat16:
      static_cast<std::uint16_t*>(data)[i] = float16_of_float(value);
      break;
    case ElementType::kBFloat16:
      static_cast<std::uint16_t*>(data)[i] = bfloat16_of_float(value);
      break;
    default: static_cast<float*>(data)[i] = value;
  }
}

}  // namespace leanattn
