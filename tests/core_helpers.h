// What the tests of the core share: small calls with memory of their own, and the
// sentence of an error.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "leanattn/attention.h"

namespace leanattn::testing_core {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The sentence of the `Kind` that `call` throws; fails the test if it throws none.
template <class Kind = InvalidArgument, class Call>
std::string sentence_of(const Call& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// A decode call in f32: q all 0, keys all 0, and V_j = j in every element. Tests
/// change what they are about. `out` and `lse` begin as NaN.
struct Call {
  std::int64_t batch, q_len, num_heads, num_kv_heads, head_dim, v_head_dim, capacity;
  std::vector<float> q, k, v, out, lse;
  std::vector<std::int32_t> lengths;
  Arguments arguments;

  explicit Call(std::vector<std::int32_t> n, std::int64_t queries = 1, std::int64_t heads = 1,
                std::int64_t kv_heads = 1, std::int64_t dim = 2, std::int64_t v_dim = 2)
      : batch(static_cast<std::int64_t>(n.size())),
        q_len(queries),
        num_heads(heads),
        num_kv_heads(kv_heads),
        head_dim(dim),
        v_head_dim(v_dim),
        capacity(0),
        lengths(std::move(n)) {
    for (const std::int32_t length : lengths) capacity = std::max<std::int64_t>(capacity, length);
    build();
  }

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Lays out memory anew for the extents at hand.
  void build() {
    q.assign(size(batch * q_len * num_heads * head_dim), 0.0f);
    k.assign(size(batch * capacity * num_kv_heads * head_dim), 0.0f);
    v.assign(size(batch * capacity * num_kv_heads * v_head_dim), 0.0f);
    out.assign(size(batch * q_len * num_heads * v_head_dim), kNaN);
    lse.assign(size(batch * q_len * num_heads), kNaN);
    const auto f32 = ElementType::kFloat32;
    arguments.q = contiguous<4, const void*>(q.data(), f32, {batch, q_len, num_heads, head_dim});
    arguments.kv.k =
        contiguous<4, const void*>(k.data(), f32, {batch, capacity, num_kv_heads, head_dim});
    arguments.kv.v =
        contiguous<4, const void*>(v.data(), f32, {batch, capacity, num_kv_heads, v_head_dim});
    arguments.lengths = indices(lengths.data(), batch);
    arguments.out = contiguous<4, void*>(out.data(), f32, {batch, q_len, num_heads, v_head_dim});
    arguments.lse = contiguous<3, void*>(lse.data(), f32, {batch, q_len, num_heads});
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t j = 0; j < capacity; ++j) set_value(b, j, static_cast<float>(j));
    }
  }

  /// Key j of sequence b: every element of its value, all heads.
  void set_value(std::int64_t b, std::int64_t j, float value) {
    fill(v, (b * capacity + j) * num_kv_heads * v_head_dim, num_kv_heads * v_head_dim, value);
  }
  void set_key(std::int64_t b, std::int64_t j, float value) {
    fill(k, (b * capacity + j) * num_kv_heads * head_dim, num_kv_heads * head_dim, value);
  }

  [[nodiscard]] float out_of(std::int64_t row) const { return out[size(row * v_head_dim)]; }
  [[nodiscard]] float lse_of_row(std::int64_t row) const { return lse[size(row)]; }

 private:
  static std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }
  static void fill(std::vector<float>& values, std::int64_t first, std::int64_t count,
                   float value) {
    for (std::int64_t i = 0; i < count; ++i) values[size(first + i)] = value;
  }
};

}  // namespace leanattn::testing_core
