// How much the random tests draw: LEANATTN_TEST_SCALE multiplies it (default 1).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace leanattn::testing {

/// `count` times LEANATTN_TEST_SCALE, at least 1.
inline std::int64_t scaled(std::int64_t count) {
  const char* text = std::getenv("LEANATTN_TEST_SCALE");
  const double scale = text == nullptr ? 1.0 : std::atof(text);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(count) * scale));
}

}  // namespace leanattn::testing
