// Which keys a query sees: causal and window rules in closed form, for one query
// and for a block of consecutive queries. Host and device.
//
// Query row i of m sits at position p = n − m + i among n keys (bottom-right
// alignment: the last query sees the last key).
#pragma once

#include <cstdint>

#include "leanattn/partition.h"

namespace leanattn {

/// Positions relative to a query. A bound of −1 is no bound.
struct Window {
  bool causal = false;      // hides keys j > p
  std::int64_t left = -1;   // hides keys j < p − left
  std::int64_t right = -1;  // hides keys j > p + right
};

/// The keys visible to the queries at positions [first, last], as one half-open
/// range clipped to [0, num_keys). It may be empty.
LEANATTN_HOST_DEVICE constexpr Range visible_keys(const Window& window, std::int64_t first,
                                                  std::int64_t last, std::int64_t num_keys) {
  std::int64_t begin = 0;
  std::int64_t end = num_keys;
  if (window.causal && last + 1 < end) end = last + 1;
  if (window.right >= 0 && last + window.right + 1 < end) end = last + window.right + 1;
  if (window.left >= 0 && first - window.left > 0) begin = first - window.left;
  if (end < 0) end = 0;
  return {begin, begin < end ? end : begin};
}

/// Whether the query at position p sees key j (0 ≤ j < num_keys).
LEANATTN_HOST_DEVICE constexpr bool sees(const Window& window, std::int64_t p, std::int64_t j) {
  return (!window.causal || j <= p) && (window.left < 0 || j >= p - window.left) &&
         (window.right < 0 || j <= p + window.right);
}

}  // namespace leanattn
