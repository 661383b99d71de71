// What a call asks for, read off its arguments, and which numbers make sense
// together. Everything after `check_problem` may rely on the bounds set here: sizes
// stay so small that their sums and the offsets made of them fit 64 bits.
#include "leanattn/problem.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/tensor_checks.h"
#include "leanattn/error.h"

namespace leanattn {
namespace {

using core::is_floating;

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 48;    // of one dimension
constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;  // of one tensor

bool product_fits(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor != 0 && product > kMaxElements / factor) return false;
    product *= factor;
  }
  return true;
}

void check_extent(std::string_view name, std::int64_t value, std::int64_t least) {
  check(value >= least && value <= kMaxExtent, name, " is ", value, "; it must be from ", least,
        " to 2^48");
}

void check_sizes(const Problem& problem) {
  check_extent("batch", problem.batch, 0);
  check_extent("max_q_len", problem.max_q_len, 0);
  check_extent("num_q_heads", problem.num_q_heads, 1);
  check_extent("num_kv_heads", problem.num_kv_heads, 1);
  check_extent("head_dim", problem.head_dim, 1);
  check_extent("v_head_dim", problem.v_head_dim, 1);
  check_extent("max_kv_len", problem.max_kv_len, 0);
  check(problem.num_q_heads % problem.num_kv_heads == 0, "num_q_heads is ", problem.num_q_heads,
        " and num_kv_heads is ", problem.num_kv_heads,
        "; num_q_heads must be a multiple of num_kv_heads");

  check(product_fits({problem.batch, problem.max_q_len}), "batch·max_q_len is ", problem.batch, "·",
        problem.max_q_len, "; it must be at most 2^60");
  const std::int64_t most = problem.batch * problem.max_q_len;
  const std::int64_t least = problem.ragged_q ? 0 : most;
  check(problem.num_queries >= least && problem.num_queries <= most, "num_queries is ",
        problem.num_queries, "; with batch ", problem.batch, " and max_q_len ", problem.max_q_len,
        " it must be ", problem.ragged_q ? "at most " : "", most);
  const std::int64_t widest = std::max(problem.head_dim, problem.v_head_dim);
  check(product_fits({problem.num_queries, problem.num_q_heads, widest}),
        "num_queries·num_q_heads·head_dim is ", problem.num_queries, "·", problem.num_q_heads, "·",
        widest, "; it must be at most 2^60");
}

void check_rules(const ScoreRules& rules) {
  check(rules.softcap >= 0.0f && std::isfinite(rules.softcap), "softcap is ", rules.softcap,
        "; it must be finite, and positive or 0 for none");
  check(!rules.scale || std::isfinite(*rules.scale), "scale is ", rules.scale.value_or(0.0f),
        "; it must be finite");
  for (const auto& [name, bound] : {std::pair{"window.left", rules.window.left},
                                    std::pair{"window.right", rules.window.right}}) {
    check(bound >= -1 && bound <= kMaxExtent, name, " is ", bound,
          "; it must be from 0 to 2^48, or -1 for no bound");
  }
}

void check_types(const Problem& problem) {
  for (const auto& [name, type] :
       {std::pair{"q_type", problem.q_type}, std::pair{"k_type", problem.k_type},
        std::pair{"v_type", problem.v_type}}) {
    check<TypeMismatch>(is_floating(type), name, " is ", name_of(type),
                        "; it must be f32, f16 or bf16");
  }
  check<TypeMismatch>(
      problem.out_type == problem.q_type || problem.out_type == ElementType::kFloat32,
      "out_type is ", name_of(problem.out_type), "; it must be f32 or q_type, which is ",
      name_of(problem.q_type));
}

void check_layout(const Problem& problem) {
  if (problem.layout == KvLayout::kContiguous) {
    check(problem.page_size == 0, "page_size is ", problem.page_size,
          "; it must be 0 where the layout is contiguous, which has no pages");
  } else {
    check_extent("page_size", problem.page_size, 1);
  }
}

std::int64_t largest(const IndexView& view) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < view.columns; ++i) most = std::max(most, view[i]);
  return most;
}

std::int64_t largest_difference(const IndexView& offsets) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i + 1 < offsets.columns; ++i) {
    // Offsets that fall, which check_arguments refuses, must not overflow here.
    if (offsets[i] >= 0 && offsets[i + 1] > offsets[i]) {
      most = std::max(most, offsets[i + 1] - offsets[i]);
    }
  }
  return most;
}

bool on_host(const IndexView& view) {
  return view.given() && view.device.kind == Device::Kind::kHost;
}

/// Most keys of one sequence: as the lengths say where they can be read, else what
/// the cache could hold.
std::int64_t largest_kv_len(const Arguments& arguments) {
  if (!arguments.lengths.given()) return 0;
  if (on_host(arguments.lengths)) return largest(arguments.lengths);
  const KvView& kv = arguments.kv;
  switch (kv.layout) {
    case KvLayout::kContiguous: return kv.k.shape[1];
    case KvLayout::kPagedDense: return core::product(kv.page_table.columns, kv.page_size());
    case KvLayout::kPagedCsr: return core::product(kv.page_ids.columns, kv.page_size());
  }
  return 0;
}

}  // namespace

float Problem::scale() const {
  if (rules.scale) return *rules.scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

Problem problem_of(const Arguments& arguments, const ScoreRules& rules) {
  const TensorView<4>& q = arguments.q;
  const KvView& kv = arguments.kv;
  Problem problem;
  problem.ragged_q = arguments.q_offsets.given();
  if (problem.ragged_q) {
    problem.batch = std::max<std::int64_t>(arguments.q_offsets.columns - 1, 0);
    problem.num_queries = q.shape[1];
    problem.max_q_len = on_host(arguments.q_offsets) ? largest_difference(arguments.q_offsets)
                                                     : problem.num_queries;
  } else {
    problem.batch = q.shape[0];
    problem.max_q_len = q.shape[1];
    problem.num_queries = core::product(q.shape[0], q.shape[1]);
  }
  problem.num_q_heads = q.shape[2];
  problem.num_kv_heads = kv.k.shape[2];
  problem.head_dim = q.shape[3];
  problem.v_head_dim = kv.v.shape[3];
  problem.max_kv_len = largest_kv_len(arguments);
  problem.q_type = q.type;
  problem.k_type = kv.k.type;
  problem.v_type = kv.v.type;
  problem.out_type = arguments.out.type;
  problem.layout = kv.layout;
  problem.page_size = kv.layout == KvLayout::kContiguous ? 0 : kv.page_size();
  problem.rules = rules;
  problem.has_sinks = arguments.sinks.given();
  problem.has_alibi = arguments.alibi_slopes.given();
  problem.has_bias = arguments.bias.given();
  problem.has_tree_mask = arguments.tree_mask.given();
  problem.device = q.device;
  return problem;
}

void check_problem(const Problem& problem) {
  check_sizes(problem);
  check_types(problem);
  check_layout(problem);
  check_rules(problem.rules);
}

}  // namespace leanattn
