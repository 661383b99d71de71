// See case.h.
#include "case.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "leanattn/partition.h"

namespace leanattn::bench {

std::int64_t Case::num_keys() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t Case::longest() const { return *std::max_element(lengths.begin(), lengths.end()); }

std::int64_t Case::num_pages() const {
  std::int64_t pages = 0;
  for (const std::int64_t length : lengths) pages += ceil_div(length, page_size);
  return pages;
}

std::int64_t Case::token_bytes() const { return num_kv_heads * 2 * head_dim * size_of(type); }

std::int64_t Case::cache_bytes() const {
  const std::int64_t tokens = page_size > 0 ? num_pages() * page_size : batch() * longest();
  return tokens * token_bytes();
}

double Case::flops() const {
  double pairs = 0;  // of a query and a key that it sees
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < q_len; ++i) {
      const std::int64_t position = length - q_len + i;
      pairs += static_cast<double>(visible_keys(rules().window, position, position, length).size());
    }
  }
  return pairs * 4 * static_cast<double>(head_dim * num_q_heads);
}

ScoreRules Case::rules() const {
  ScoreRules rules;
  rules.window.causal = causal;
  return rules;
}

std::string Case::shape_text() const {
  const std::int64_t shortest = *std::min_element(lengths.begin(), lengths.end());
  const std::string keys = shortest == longest() ? fmt::format("{}", shortest)
                                                 : fmt::format("{} to {}", shortest, longest());
  return fmt::format("{} × {} keys, {}/{} heads of {}{}{}{}{}", batch(), keys, num_q_heads,
                     num_kv_heads, head_dim, q_len > 1 ? fmt::format(", {} queries", q_len) : "",
                     causal ? ", causal" : "",
                     page_size > 0 ? fmt::format(", pages of {}", page_size) : "",
                     batch_invariant ? ", batch invariant" : "");
}

Rotation rotation_of(const Case& shape, std::int64_t room_bytes, std::int64_t least_calls) {
  constexpr std::int64_t kColdBytes = 400'000'000;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(ceil_div(kColdBytes, shape.read_bytes()), 3, 64);
  const std::int64_t copies = std::min(wanted, room_bytes / shape.cache_bytes());
  if (copies == 0) return {};
  return {copies, copies * ceil_div(least_calls, copies)};
}

}  // namespace leanattn::bench
