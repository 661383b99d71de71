// The tensors of a workload: as many caches, in one big buffer, as keep every call
// cold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bench_workload.h"
#include "huge_buffer.h"
#include "leanattn/problem.h"

namespace leanattn::tools {

/// Caches of a workload: calls rotate over them, so that each finds nothing of its
/// own in a last-level cache of `last_level_cache_bytes`.
[[nodiscard]] std::int64_t num_copies(const Workload& workload, ElementType type,
                                      std::int64_t last_level_cache_bytes);

/// Bytes that those caches take.
[[nodiscard]] std::int64_t buffer_bytes(const Workload& workload, ElementType type,
                                        std::int64_t copies);

/// A buffer that workloads take turns to use, full of random values of one type,
/// evenly from [-1, 1).
class Values {
 public:
  Values(std::int64_t bytes, int num_threads);

  /// Makes all values of `type`.
  void set_type(ElementType type);
  [[nodiscard]] std::byte* data() const { return buffer_.bytes().data(); }

 private:
  HugeBuffer buffer_;
  int num_threads_;
  std::optional<ElementType> type_;
};

/// The calls of a workload. `values` must outlive it and be of `type`.
class Calls {
 public:
  Calls(const Workload& workload, ElementType type, std::int64_t copies, const Values& values);
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  [[nodiscard]] const ScoreRules& rules() const { return rules_; }
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(calls_.size()); }
  [[nodiscard]] const Arguments& operator[](std::int64_t copy) const {
    return calls_[static_cast<std::size_t>(copy)];
  }
  /// The bytes of keys and values that call `copy` reads.
  [[nodiscard]] std::span<const std::span<const std::byte>> cache(std::int64_t copy) const {
    return caches_[static_cast<std::size_t>(copy)];
  }
  /// The next call, other than the last `size() - 1` ones.
  [[nodiscard]] std::int64_t next() { return next_ = (next_ + 1) % size(); }

 private:
  ScoreRules rules_;
  std::vector<std::int64_t> lengths_;
  std::vector<std::int32_t> page_table_;
  std::vector<std::byte> q_;
  std::vector<std::byte> out_;
  std::vector<float> lse_;
  std::vector<Arguments> calls_;
  std::vector<std::vector<std::span<const std::byte>>> caches_;
  std::int64_t next_ = 0;
};

}  // namespace leanattn::tools
