// The named problems of `leanattn bench`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "leanattn/problem.h"
#include "problem_file.h"

namespace leanattn::tools {

struct Workload {
  std::string name;   // "mha_d128_16k"
  std::string about;  // what it stands for
  std::int64_t num_q_heads = 1;
  std::int64_t num_kv_heads = 1;
  std::int64_t head_dim = 128;
  std::int64_t q_len = 1;
  std::vector<std::int64_t> lengths;  // keys of each sequence
  bool causal = false;
  bool quick = false;          // part of --quick
  bool warm = false;           // one cache, called again and again
  std::int64_t page_size = 0;  // 0: contiguous
  CacheOrder order = CacheOrder::kNhd;
  std::optional<ElementType> type;  // of q, k, v, out; else what --type says
  std::optional<double> peer_us;    // what a peer took for it; see `about`

  [[nodiscard]] std::int64_t num_keys() const;
  /// Bytes of keys and values that a call reads.
  [[nodiscard]] std::int64_t cache_bytes(ElementType element) const;
  /// One line: "1 × 16384 keys, 32/8 heads of 128".
  [[nodiscard]] std::string shape_text() const;
};

/// All of them, in the order they run.
[[nodiscard]] std::vector<Workload> all_workloads();

}  // namespace leanattn::tools
