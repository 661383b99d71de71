// What the benchmark calls attention on: a named shape, and the tables of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leanattn/problem.h"

namespace leanattn::bench {

struct Case {
  std::string name;
  std::string group;  // "peers", "paper", "features"
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 128;
  std::int64_t q_len = 1;
  std::vector<std::int64_t> lengths;  // keys of each sequence
  bool causal = false;
  std::int64_t page_size = 0;  // 0: contiguous; else pages in random order
  bool heads_first = false;    // HND: the tokens of a head side by side; else NHD
  bool batch_invariant = false;
  bool quick = false;  // part of --quick
  ElementType type = ElementType::kBFloat16;

  [[nodiscard]] std::int64_t batch() const { return static_cast<std::int64_t>(lengths.size()); }
  [[nodiscard]] std::int64_t num_keys() const;
  [[nodiscard]] std::int64_t longest() const;
  /// Pages of all sequences; paged cases only.
  [[nodiscard]] std::int64_t num_pages() const;
  /// Bytes of one token's keys and values.
  [[nodiscard]] std::int64_t token_bytes() const;
  /// Bytes of keys and values that a call reads.
  [[nodiscard]] std::int64_t read_bytes() const { return num_keys() * token_bytes(); }
  /// Bytes of the cache, unused room included.
  [[nodiscard]] std::int64_t cache_bytes() const;
  /// Multiplications and additions of a call.
  [[nodiscard]] double flops() const;
  [[nodiscard]] ScoreRules rules() const;
  /// One line: "16 × 4096 keys, 32/8 heads of 128".
  [[nodiscard]] std::string shape_text() const;
};

/// How many caches a case rotates over, and how many calls a graph holds: together 400 MB
/// or 64 caches, never fewer than 3, so that no call finds its keys in the L2 (60 MB); at
/// least `least_calls` calls, as often over each cache.
struct Rotation {
  std::int64_t copies = 0;  // 0: not one fits
  std::int64_t calls = 0;
};
[[nodiscard]] Rotation rotation_of(const Case& shape, std::int64_t room_bytes,
                                   std::int64_t least_calls = 8);

/// Those of the peers' measurements on this GPU (h200-peers-2026-11-29).
[[nodiscard]] std::vector<Case> peer_cases();
/// The grid of the paper's evaluation, caches of at most `most_bytes`, smallest first.
[[nodiscard]] std::vector<Case> paper_cases(std::int64_t most_bytes);
/// What paging, batch invariance and more queries cost, and a prefill.
[[nodiscard]] std::vector<Case> feature_cases();

}  // namespace leanattn::bench
