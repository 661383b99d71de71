// Whether the tensors of a call are what its problem announced: everything that
// the host can see, before anything is touched.
//
// A run of one short sequence takes a few microseconds, so this takes a fraction of
// one: comparisons only, no memory, and text only where something is wrong.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/index_values.h"
#include "core/kv_access.h"
#include "core/kv_checks.h"
#include "core/tensor_checks.h"
#include "leanattn/error.h"
#include "leanattn/problem.h"
#include "leanattn/visibility.h"

namespace leanattn {
namespace {

using core::check_data;
using core::check_device;
using core::check_rows_contiguous;
using core::check_shape;
using core::check_type;

/// Extents of the first two dimensions of q, out and lse.
struct QueryExtents {
  std::int64_t outer;
  std::int64_t inner;
};

QueryExtents query_extents(const Problem& problem) {
  if (problem.ragged_q) return {1, problem.num_queries};
  return {problem.batch, problem.max_q_len};
}

void check_q(const Problem& problem, const TensorView<4>& q) {
  const auto [outer, inner] = query_extents(problem);
  check_type("q", q.type, problem.q_type);
  check_device("q", q.device, problem.device);
  check_shape("q", q, {outer, inner, problem.num_q_heads, problem.head_dim});
  check_rows_contiguous("q", q);
  check_data("q", q);
}

void check_results(const Problem& problem, const MutableTensorView<4>& out,
                   const MutableTensorView<3>& lse) {
  const auto [outer, inner] = query_extents(problem);
  check_type("out", out.type, problem.out_type);
  check_device("out", out.device, problem.device);
  check_shape("out", out, {outer, inner, problem.num_q_heads, problem.v_head_dim});
  check_rows_contiguous("out", out);
  core::check_writable("out", out);
  check_data("out", out);
  if (!lse.given()) return;
  check_type("lse", lse.type, ElementType::kFloat32);
  check_device("lse", lse.device, problem.device);
  check_shape("lse", lse, {outer, inner, problem.num_q_heads});
  core::check_writable("lse", lse);
  check_data("lse", lse);
}

void check_q_offsets(const Problem& problem, const IndexView& offsets) {
  if (!problem.ragged_q) {
    check(!offsets.given(),
          "q_offsets is given, but ragged_q of the problem is false; it must be left out, because "
          "it would be ignored");
    return;
  }
  if (problem.batch == 0 && !offsets.given()) return;
  core::check_index_vector("q_offsets", offsets, problem.batch + 1, problem.device);
}

/// What ragged q_offsets hold. Host memory.
void check_q_offset_values(const Problem& problem, const IndexView& offsets) {
  if (!problem.ragged_q || problem.batch == 0) return;
  core::check_offsets("q_offsets", offsets, problem.num_queries);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t q_len = offsets[b + 1] - offsets[b];
    check(q_len <= problem.max_q_len, "q_offsets gives sequence ", b, " ", q_len,
          " queries; it must be at most max_q_len, which is ", problem.max_q_len);
  }
}

void check_cache(const Problem& problem, const KvView& kv) {
  check(kv.layout == problem.layout, "the layout of kv is ", name_of(kv.layout), "; it must be ",
        name_of(problem.layout));
  check_type("k", kv.k.type, problem.k_type);
  check_type("v", kv.v.type, problem.v_type);
  check(kv.layout == KvLayout::kContiguous || kv.page_size() == problem.page_size,
        "page_size of kv is ", kv.page_size(), "; it must be ", problem.page_size);
  check_shape("k", kv.k, {kv.k.shape[0], kv.k.shape[1], problem.num_kv_heads, problem.head_dim});
  check_shape("v", kv.v, {kv.v.shape[0], kv.v.shape[1], problem.num_kv_heads, problem.v_head_dim});
  core::check_kv(kv, problem.batch, problem.device);
}

void check_length(const Problem& problem, const KvView& kv, std::int64_t b, std::int64_t n) {
  const std::int64_t capacity = core::capacity_of(kv, b);
  check(n >= 0 && n <= capacity, "lengths[", b, "] is ", n, "; it must be from 0 to ", capacity,
        ", the keys that sequence ", b, " has room for");
  check(n <= problem.max_kv_len, "lengths[", b, "] is ", n,
        "; it must be at most max_kv_len, which is ", problem.max_kv_len);
}

/// The lengths, and the pages of every key that some query sees. A page before the
/// window of a sequence's first query may have been freed: its entry is not read.
/// Returns the most keys of one sequence. Host memory.
std::int64_t check_sequences(const Problem& problem, const Arguments& arguments) {
  std::int64_t longest = 0;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const std::int64_t n = arguments.lengths[b];
    check_length(problem, arguments.kv, b, n);
    longest = std::max(longest, n);
    const std::int64_t q_len =
        problem.ragged_q ? arguments.q_offsets[b + 1] - arguments.q_offsets[b] : problem.max_q_len;
    if (q_len == 0) continue;
    core::check_pages(arguments.kv, b, visible_keys(problem.rules.window, n - q_len, n - 1, n));
  }
  return longest;
}

/// An optional tensor is there exactly when `field` of the problem says so; an
/// empty one may lack memory. Returns whether there is something to look at.
template <class View>
bool check_announced(std::string_view name, const View& view, std::string_view field,
                     bool announced, bool empty) {
  check(announced || !view.given(), name, " is given, but ", field,
        " of the problem is false; it must be left out, because it would be ignored");
  check(!announced || view.given() || empty, name, " is not given, but ", field,
        " of the problem is true; it must be given");
  return view.given();
}

void check_per_head(const Problem& problem, std::string_view name, const TensorView<1>& values,
                    std::string_view field, bool announced) {
  if (!check_announced(name, values, field, announced, problem.num_queries == 0)) return;
  core::check_floating(name, values.type);
  check_device(name, values.device, problem.device);
  check_shape(name, values, {problem.num_q_heads});
  check_data(name, values);
}

void check_least_extent(std::string_view name, int dimension, std::int64_t extent,
                        std::int64_t least, std::string_view what) {
  check(extent >= least, name, " has extent ", extent, " in dimension ", dimension,
        "; it must be at least ", least, ", ", what);
}

void check_bias(const Problem& problem, const TensorView<4>& bias, std::int64_t longest) {
  const bool empty = problem.num_queries == 0 || longest == 0;
  if (!check_announced("bias", bias, "has_bias", problem.has_bias, empty)) return;
  check_device("bias", bias.device, problem.device);
  check_shape("bias", bias, {problem.batch, problem.num_q_heads, bias.shape[2], bias.shape[3]});
  check_least_extent("bias", 2, bias.shape[2], problem.max_q_len, "the most queries of a sequence");
  check_least_extent("bias", 3, bias.shape[3], longest, "the most keys of a sequence");
  check_data("bias", bias);
}

void check_tree_mask(const Problem& problem, const TensorView<3>& mask) {
  const bool empty = problem.num_queries == 0;
  if (!check_announced("tree_mask", mask, "has_tree_mask", problem.has_tree_mask, empty)) return;
  check_type("tree_mask", mask.type, ElementType::kBool);
  check_device("tree_mask", mask.device, problem.device);
  check_shape("tree_mask", mask, {problem.batch, mask.shape[1], mask.shape[2]});
  for (const int dimension : {1, 2}) {
    check_least_extent("tree_mask", dimension, mask.shape[dimension], problem.max_q_len,
                       "the most queries of a sequence");
  }
  check_data("tree_mask", mask);
}

}  // namespace

std::int64_t core::check_index_values(const Problem& problem, const Arguments& arguments) {
  check_q_offset_values(problem, arguments.q_offsets);
  check_table_entries(arguments.kv, problem.batch);
  return check_sequences(problem, arguments);
}

void check_arguments(const Problem& problem, const Arguments& arguments) {
  check_q(problem, arguments.q);
  check_results(problem, arguments.out, arguments.lse);
  check_q_offsets(problem, arguments.q_offsets);
  check_cache(problem, arguments.kv);
  core::check_index_vector("lengths", arguments.lengths, problem.batch, problem.device);
  const std::int64_t longest = problem.device.kind == Device::Kind::kHost
                                   ? core::check_index_values(problem, arguments)
                                   : problem.max_kv_len;
  check_per_head(problem, "sinks", arguments.sinks, "has_sinks", problem.has_sinks);
  check_per_head(problem, "alibi_slopes", arguments.alibi_slopes, "has_alibi", problem.has_alibi);
  check_bias(problem, arguments.bias, longest);
  check_tree_mask(problem, arguments.tree_mask);
}

}  // namespace leanattn
