// Draws a spec from 64 bits. Sizes are drawn so that small and large ones are
// equally likely and Σ rows · keys · dims stays below a budget.
#include <algorithm>
#include <iterator>

#include "leanattn/error.h"
#include "testing/case_spec.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

constexpr std::int64_t kMultiplyBudget = 1'500'000;  // of the reference: about 3 ms
constexpr std::int64_t kScoreCost = 30;              // multiplications that an exp costs
constexpr std::int64_t kCacheBudget = 600'000;       // elements of K and of V

ElementType draw_float_type(RandomBits& bits) {
  return bits.pick({ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16});
}

void draw_types(RandomBits& bits, CaseSpec& spec) {
  spec.q_type = draw_float_type(bits);
  spec.k_type = bits.chance(0.6) ? spec.q_type : draw_float_type(bits);
  spec.v_type = bits.chance(0.7) ? spec.k_type : draw_float_type(bits);
  spec.out_type = bits.chance(0.6) ? spec.q_type : ElementType::kFloat32;
  spec.index_type = bits.pick({IndexType::kInt32, IndexType::kInt64});
}

std::int64_t draw_head_dim(RandomBits& bits) {
  if (bits.chance(0.3)) return bits.pick<std::int64_t>({64, 128});
  return bits.pick<std::int64_t>(
      {1, 7, 16, 33, 40, 48, 56, 64, 72, 80, 88, 96, 112, 128, 160, 192, 224, 256});
}

// Long contexts leave room for few heads.
void draw_heads(RandomBits& bits, CaseSpec& spec, bool long_context) {
  spec.head_dim = draw_head_dim(bits);
  spec.v_head_dim = bits.chance(0.8) ? spec.head_dim : draw_head_dim(bits);
  spec.group_size =
      bits.chance(0.4)
          ? bits.pick<std::int64_t>({1, 2, 4, 8})
          : bits.pick<std::int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14, 16, 17, 24, 32, 71});
  spec.num_kv_heads = bits.log_between(1, std::max<std::int64_t>(1, 32 / spec.group_size));
  if (!long_context) return;
  spec.group_size = bits.between(1, 4);
  spec.num_kv_heads = bits.between(1, 2);
}

// Queries of each sequence. Prefill comes with few heads and sequences.
void draw_queries(RandomBits& bits, CaseSpec& spec, std::int64_t batch) {
  const std::int64_t dims = spec.head_dim + spec.v_head_dim + kScoreCost;
  const std::int64_t rows = kMultiplyBudget / (dims * spec.num_q_heads());
  std::int64_t most = 1;
  if (bits.chance(0.35)) most = bits.between(0, 8);
  if (bits.chance(0.1)) most = bits.log_between(8, 200);
  most = std::min(most, std::max<std::int64_t>(rows / std::max<std::int64_t>(batch, 1) / 4, 1));
  spec.ragged_q = bits.chance(0.25);
  for (std::int64_t b = 0; b < batch; ++b) {
    spec.q_lens.push_back(spec.ragged_q ? bits.between(0, most) : most);
  }
}

// Keys of each sequence: any length up to what the budget allows, often at the
// border of a page or of a LeanTile, sometimes 0 or 1.
void draw_lengths(RandomBits& bits, CaseSpec& spec, std::int64_t batch, bool long_context) {
  const std::int64_t dims = spec.head_dim + spec.v_head_dim + kScoreCost;
  const std::int64_t queries = std::max<std::int64_t>(spec.num_queries(), 1);
  std::int64_t most = kMultiplyBudget / (dims * spec.num_q_heads() * queries);
  most = std::min(most, kCacheBudget / (std::max<std::int64_t>(batch, 1) * spec.num_kv_heads *
                                        std::max(spec.head_dim, spec.v_head_dim)));
  most = std::clamp<std::int64_t>(most, 4, 5000);
  const std::int64_t limit = long_context || bits.chance(0.4) ? most : bits.log_between(1, most);
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t length = bits.chance(0.5) ? bits.between(1, limit) : bits.log_between(1, limit);
    if (bits.chance(0.3)) {
      const std::int64_t border = bits.pick<std::int64_t>({spec.page_size, 16, 64, 128, 256});
      length = std::max<std::int64_t>((length + border - 1) / border, 1) * border;
      length += bits.between(-1, 1);
      while (length > most + 1) length = std::max<std::int64_t>(length - border, 1);
    }
    if (bits.chance(0.1)) length = bits.between(0, 1);
    spec.lengths.push_back(length);
  }
}

void draw_layout(RandomBits& bits, CaseSpec& spec) {
  spec.layout = bits.pick({KvLayout::kContiguous, KvLayout::kPagedDense, KvLayout::kPagedCsr});
  spec.page_size = bits.pick<std::int64_t>({1, 2, 3, 5, 7, 16, 32, 64, 128, 256, 544});
  const std::int64_t slot = spec.num_kv_heads * std::max(spec.head_dim, spec.v_head_dim);
  while (spec.page_size > 16 && spec.page_size * slot * 4 > kCacheBudget) spec.page_size /= 2;
  spec.kv_order =
      bits.pick({KvOrder::kNhd, KvOrder::kHnd, KvOrder::kPadded, KvOrder::kInterleaved});
  if (spec.k_type != spec.v_type && spec.kv_order == KvOrder::kInterleaved) {
    spec.kv_order = KvOrder::kPadded;
  }
  spec.q_order = bits.pick({RowOrder::kContiguous, RowOrder::kPacked, RowOrder::kPadded});
  spec.out_order = bits.pick({RowOrder::kContiguous, RowOrder::kPadded});
  spec.spare = bits.chance(0.5) ? 0 : bits.between(1, spec.paged() ? 3 : 40);
  spec.spare_columns = bits.chance(0.5) ? 0 : bits.between(1, 5);
  spec.in_order = bits.chance(0.1);
  spec.shared_prefix = bits.chance(0.15);
  spec.cache_rows = bits.chance(0.3);
}

void draw_rules(RandomBits& bits, CaseSpec& spec) {
  ScoreRules& rules = spec.rules;
  if (bits.chance(0.3)) rules.scale = bits.pick({0.0f, 0.05f, 0.125f, 0.3f, -0.1f});
  if (bits.chance(0.2)) rules.softcap = bits.pick({0.5f, 2.0f, 30.0f});
  rules.window.causal = bits.chance(0.5);
  const std::int64_t longest = std::max<std::int64_t>(spec.max_length(), 1);
  if (bits.chance(0.25)) rules.window.left = bits.log_between(1, longest) - 1;
  if (bits.chance(0.1)) rules.window.right = bits.log_between(1, longest) - 1;
  if (bits.chance(0.25)) spec.sinks = draw_float_type(bits);
  if (bits.chance(0.2)) spec.alibi = draw_float_type(bits);
  if (bits.chance(0.2)) {
    spec.bias = bits.chance(0.3) ? ElementType::kBool : draw_float_type(bits);
    spec.bias_per_sequence = bits.chance(0.7);
    spec.bias_per_head = bits.chance(0.6);
    spec.bias_per_query = bits.chance(0.7);
    spec.bias_hides = bits.pick({0.0, 0.2, 0.9, 0.99});
  }
  if (bits.chance(0.15) && spec.max_q_len() <= 16) {
    spec.tree = bits.pick({TreeKind::kTree, TreeKind::kRandom});
  }
}

// As most decode steps are: a query for each sequence, and nothing but the output wanted of it.
void make_common(CaseSpec& spec) {
  spec.q_lens.assign(spec.lengths.size(), 1);
  spec.ragged_q = false;
  spec.rules = {};
  spec.sinks = spec.alibi = spec.bias = std::nullopt;
  spec.tree = TreeKind::kNone;
  spec.out_type = spec.q_type;
  spec.cache_rows = false;
  spec.with_lse = false;
}

// Types and head dims within the limits; without limits nothing is drawn.
void keep_within(const SpecLimits& limits, RandomBits& bits, CaseSpec& spec) {
  if (limits.empty()) return;
  const TypeAndDims& drawn = bits.pick(limits);
  const bool wide_out = spec.out_type == ElementType::kFloat32;
  spec.q_type = spec.k_type = spec.v_type = drawn.type;
  spec.out_type = wide_out ? ElementType::kFloat32 : drawn.type;
  spec.head_dim = drawn.head_dim;
  spec.v_head_dim = drawn.v_head_dim;
}

// One query over one key on the backend's device.
Problem smallest_problem(const Backend& backend, const TypeAndDims& kind) {
  Problem problem;
  problem.batch = problem.num_queries = 1;
  problem.num_q_heads = problem.num_kv_heads = 1;
  problem.max_kv_len = 1;
  problem.head_dim = kind.head_dim;
  problem.v_head_dim = kind.v_head_dim;
  problem.q_type = problem.k_type = problem.v_type = problem.out_type = kind.type;
  problem.device.kind = backend.device_kind();
  return problem;
}

}  // namespace

SpecLimits limits_of(const Backend& backend) {
  if (backend.device_kind() == Device::Kind::kHost) return {};
  SpecLimits all;
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    for (const std::int64_t dim : {64, 80, 96, 128, 192, 256}) all.push_back({type, dim, dim});
    all.push_back({type, 192, 128});
  }
  // A build may have few of the kernels. Of one that has none of these, all are drawn, to be
  // refused and counted.
  SpecLimits limits = all;
  std::erase_if(limits, [&](const TypeAndDims& kind) {
    return !backend.supports(smallest_problem(backend, kind));
  });
  return limits.empty() ? all : limits;
}

std::string describe(const SpecLimits& limits) {
  std::string text;
  for (const TypeAndDims& kind : limits) {
    text += concat(text.empty() ? "" : ", ", name_of(kind.type), " ", kind.head_dim);
    if (kind.v_head_dim != kind.head_dim) text += concat("/", kind.v_head_dim);
  }
  return text;
}

CaseSpec draw_spec(std::uint64_t seed, const SpecLimits& limits) {
  RandomBits bits(seed);
  CaseSpec spec;
  spec.seed = seed;
  draw_types(bits, spec);
  const bool long_context = bits.chance(0.25);
  draw_heads(bits, spec, long_context);
  keep_within(limits, bits, spec);
  draw_layout(bits, spec);
  const std::int64_t batch = bits.chance(0.3) ? 1 : bits.between(0, long_context ? 3 : 9);
  draw_queries(bits, spec, batch);
  draw_lengths(bits, spec, batch, long_context);
  draw_rules(bits, spec);
  spec.with_lse = bits.chance(0.8);
  if (bits.chance(0.3)) make_common(spec);
  spec.q_amplitude = bits.pick({0.0f, 0.2f, 1.0f, 1.0f, 1.0f, 4.0f});
  spec.poison = bits.pick({Poison::kNaN, Poison::kInfinity});
  return spec;
}

}  // namespace leanattn::testing
