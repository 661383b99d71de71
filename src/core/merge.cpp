// Merging finished results: states made of (out, lse), merged in order, normalised
// once. The algebra is softmax_state.h; here are only the loops over O.
//
// A result alone among empty ones is copied, not computed with: its bits stay.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

#include "core/tensor_checks.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "leanattn/half.h"
#include "leanattn/softmax_state.h"
#include "leanattn/tensor.h"

namespace leanattn {
namespace {

constexpr std::int64_t kChunk = 256;  // elements of O summed at a time, on the stack

/// One row of one part: what it brings to one row of the result.
struct Part {
  const void* out;
  ElementType type;
  float lse;
};

struct Result {
  void* out;
  ElementType type;
  float* lse;
  std::int64_t size;  // v_head_dim
};

template <class Pointer>
auto* element(Pointer data, ElementType type, std::int64_t offset) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  return static_cast<Byte*>(data) + offset * size_of(type);
}

void copy_row(const Part& part, const Result& result) {
  if (part.type == result.type) {
    // memmove: the result may be the very memory of the part.
    std::memmove(result.out, part.out, static_cast<std::size_t>(result.size * size_of(part.type)));
  } else {
    for (std::int64_t d = 0; d < result.size; ++d) {
      store_float(result.out, result.type, d, load_float(part.out, part.type, d));
    }
  }
  *result.lse = part.lse;
}

void write_empty(const Result& result) {
  for (std::int64_t d = 0; d < result.size; ++d) store_float(result.out, result.type, d, 0.0f);
  *result.lse = -std::numeric_limits<float>::infinity();
}

/// Elements [begin, end) of the merged, normalised O. Returns the merged state.
template <class Parts>
SoftmaxState merge_chunk(std::int64_t num_parts, const Parts& part, const Result& result,
                         std::int64_t begin, std::int64_t end) {
  std::array<float, kChunk> sum{};
  SoftmaxState state;
  for (std::int64_t p = 0; p < num_parts; ++p) {
    const Part right = part(p);
    const SoftmaxState right_state = state_of_lse(right.lse);
    if (right_state.empty()) continue;  // its O may never have been written
    const MergeScales scales = merge(state, right_state);
    for (std::int64_t d = begin; d < end; ++d) {
      sum[d - begin] =
          sum[d - begin] * scales.left + load_float(right.out, right.type, d) * scales.right;
    }
  }
  // All parts have been read where the result, in place, overwrites one of them.
  const float factor = normaliser(state);
  for (std::int64_t d = begin; d < end; ++d) {
    store_float(result.out, result.type, d, sum[d - begin] * factor);
  }
  return state;
}

/// Merges part(0), …, part(num_parts − 1) in this order.
template <class Parts>
void merge_row(std::int64_t num_parts, const Parts& part, const Result& result) {
  std::int64_t num_filled = 0;
  std::int64_t last_filled = 0;
  for (std::int64_t p = 0; p < num_parts; ++p) {
    if (state_of_lse(part(p).lse).empty()) continue;
    ++num_filled;
    last_filled = p;
  }
  if (num_filled == 0) return write_empty(result);
  if (num_filled == 1) return copy_row(part(last_filled), result);
  SoftmaxState state;
  for (std::int64_t begin = 0; begin < result.size; begin += kChunk) {
    state = merge_chunk(num_parts, part, result, begin, std::min(begin + kChunk, result.size));
  }
  *result.lse = lse_of(state);
}

/// Merges every row; part(row, head, p) is part p of it.
template <class Parts>
void merge_rows(std::int64_t num_parts, const Parts& part, const MutableTensorView<3>& out,
                const MutableTensorView<2>& lse) {
  for (std::int64_t row = 0; row < out.shape[0]; ++row) {
    for (std::int64_t head = 0; head < out.shape[1]; ++head) {
      const Result result{element(out.data, out.type, out.offset(row, head)), out.type,
                          static_cast<float*>(lse.data) + lse.offset(row, head), out.shape[2]};
      merge_row(
          num_parts, [&](std::int64_t p) { return part(row, head, p); }, result);
    }
  }
}

template <int kRank, class Pointer>
void check_out(std::string_view name, const TensorView<kRank, Pointer>& out) {
  core::check_floating(name, out.type);
  core::check_device(name, out.device, {});
  core::check_rows_contiguous(name, out);
  core::check_data(name, out);
  check(out.shape[kRank - 1] >= 1, name, " has ", out.shape[kRank - 1],
        " elements in its last dimension, v_head_dim; it must be at least 1");
}

template <int kRank, class Pointer>
void check_lse(std::string_view name, const TensorView<kRank, Pointer>& lse) {
  core::check_type(name, lse.type, ElementType::kFloat32);
  core::check_device(name, lse.device, {});
  core::check_data(name, lse);
}

void check_result(const MutableTensorView<3>& out, const MutableTensorView<2>& lse) {
  check_out("out", out);
  check_lse("lse", lse);
  core::check_shape("lse", lse, {out.shape[0], out.shape[1]});
  core::check_writable("out", out);
  core::check_writable("lse", lse);
}

}  // namespace

void merge_states(const TensorView<3>& out_a, const TensorView<2>& lse_a,
                  const TensorView<3>& out_b, const TensorView<2>& lse_b,
                  const MutableTensorView<3>& out, const MutableTensorView<2>& lse) {
  check_result(out, lse);
  check_out("out_a", out_a);
  check_lse("lse_a", lse_a);
  check_out("out_b", out_b);
  check_lse("lse_b", lse_b);
  core::check_shape("out_a", out_a, out.shape);
  core::check_shape("out_b", out_b, out.shape);
  core::check_shape("lse_a", lse_a, lse.shape);
  core::check_shape("lse_b", lse_b, lse.shape);
  const auto part = [&](std::int64_t row, std::int64_t head, std::int64_t p) {
    const TensorView<3>& outs = p == 0 ? out_a : out_b;
    const TensorView<2>& lses = p == 0 ? lse_a : lse_b;
    return Part{element(outs.data, outs.type, outs.offset(row, head)), outs.type,
                static_cast<const float*>(lses.data)[lses.offset(row, head)]};
  };
  merge_rows(2, part, out, lse);
}

void merge_states(const TensorView<4>& outs, const TensorView<3>& lses,
                  const MutableTensorView<3>& out, const MutableTensorView<2>& lse) {
  check_result(out, lse);
  check_out("outs", outs);
  check_lse("lses", lses);
  core::check_shape("outs", outs, {outs.shape[0], out.shape[0], out.shape[1], out.shape[2]});
  core::check_shape("lses", lses, {outs.shape[0], out.shape[0], out.shape[1]});
  const auto part = [&](std::int64_t row, std::int64_t head, std::int64_t p) {
    return Part{element(outs.data, outs.type, outs.offset(p, row, head)), outs.type,
                static_cast<const float*>(lses.data)[lses.offset(p, row, head)]};
  };
  merge_rows(outs.shape[0], part, out, lse);
}

}  // namespace leanattn
