// A call with all its memory: what is not part of the problem is poisoned, every
// buffer ends at a page without access.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "leanattn/problem.h"
#include "testing/buffer.h"
#include "testing/case_spec.h"

namespace leanattn::testing {

/// Owns the buffers of one call. Keys and values that no query sees are poison;
/// `out` and `lse` start as NaN, with more NaN between and behind their rows.
struct Case {
  CaseSpec spec;
  Arguments arguments;                    // views of the buffers below
  std::vector<std::int64_t> first_query;  // [batch + 1] queries before each sequence
  std::vector<Buffer> inputs;
  Buffer out;
  Buffer lse;

  [[nodiscard]] const ScoreRules& rules() const { return spec.rules; }

  /// Whether query i of sequence b sees key j with query head h, by every rule.
  [[nodiscard]] bool visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;

  /// The head_dim (v: v_head_dim) elements of one token and head.
  [[nodiscard]] void* q_row(std::int64_t b, std::int64_t i, std::int64_t h) const;
  [[nodiscard]] void* k_row(std::int64_t b, std::int64_t j, std::int64_t kv_head) const;
  [[nodiscard]] void* v_row(std::int64_t b, std::int64_t j, std::int64_t kv_head) const;
  /// Sets every element of a row.
  void set_q(std::int64_t b, std::int64_t i, std::int64_t h, float value) const;
  void set_k(std::int64_t b, std::int64_t j, std::int64_t kv_head, float value) const;
  void set_v(std::int64_t b, std::int64_t j, std::int64_t kv_head, float value) const;

  /// Fills `out` and `lse` with NaN again.
  void reset_output() const;
  /// A hash of all inputs.
  [[nodiscard]] std::uint64_t input_hash() const;
};

/// Lays out the memory of `spec` and fills it.
[[nodiscard]] Case build_case(const CaseSpec& spec);

/// The random case of a seed.
[[nodiscard]] inline Case make_case(std::uint64_t seed) { return build_case(draw_spec(seed)); }

/// One line that names every choice.
[[nodiscard]] inline std::string describe(const Case& problem) { return describe(problem.spec); }

}  // namespace leanattn::testing
