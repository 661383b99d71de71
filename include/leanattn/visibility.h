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

  friend bool operator==(const Window&, const Window&) = default;
};

/// The keys visible to the queries at positions [first, last], as one half-open
/// range clipped to [0, num_keys). It may be empty.
template <class Int>
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr BasicRange<Int> visible_keys(const Window& window,
                                                                          Int first, Int last,
                                                                          Int num_keys) {
  const Int left = static_cast<Int>(window.left);
  const Int right = static_cast<Int>(window.right);
  Int begin = 0;
  Int end = num_keys;
  if (window.causal && last + 1 < end) end = last + 1;
  // Differences, as sums of two positions may not fit.
  if (right >= 0 && right < end - last - 1) end = last + right + 1;
  if (left >= 0 && first > left) begin = first - left;
  if (end < 0) end = 0;
  return {begin, begin < end ? end : begin};
}

/// Whether the query at position p sees key j (0 ≤ j < num_keys).
template <class Int>
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr bool sees(const Window& window, Int p, Int j) {
  const Int left = static_cast<Int>(window.left);
  const Int right = static_cast<Int>(window.right);
  return (!window.causal || j <= p) && (left < 0 || p - j <= left) && (right < 0 || j - p <= right);
}

}  // namespace leanattn
