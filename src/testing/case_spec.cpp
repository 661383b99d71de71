// The sizes and the one-line description of a spec.
#include "testing/case_spec.h"

#include <algorithm>
#include <numeric>
#include <sstream>

namespace leanattn::testing {
namespace {

std::string_view name_of(KvOrder order) {
  switch (order) {
    case KvOrder::kNhd: return "NHD";
    case KvOrder::kHnd: return "HND";
    case KvOrder::kPadded: return "padded";
    case KvOrder::kInterleaved: return "interleaved";
  }
  return "?";
}

std::string_view name_of(RowOrder order) {
  switch (order) {
    case RowOrder::kContiguous: return "contiguous";
    case RowOrder::kPacked: return "packed";
    case RowOrder::kPadded: return "padded";
  }
  return "?";
}

// The values; where they are all equal, one of them.
std::string list(const std::vector<std::int64_t>& values) {
  std::ostringstream text;
  if (!values.empty() && std::ranges::all_of(values, [&](auto v) { return v == values[0]; })) {
    text << values[0];
    return text.str();
  }
  text << '[';
  for (std::size_t i = 0; i < values.size(); ++i) text << (i == 0 ? "" : ",") << values[i];
  text << ']';
  return text.str();
}

void describe_cache(std::ostream& text, const CaseSpec& spec) {
  text << ", " << leanattn::name_of(spec.layout);
  if (spec.paged()) text << " page " << spec.page_size;
  text << ' ' << name_of(spec.kv_order) << " spare " << spec.spare;
  if (spec.spare_columns > 0) text << " spare columns " << spec.spare_columns;
  if (spec.cache_rows) text << ", cache rows";
  if (spec.shared_prefix) text << ", shared prefix";
  text << ", q " << name_of(spec.q_order) << ", out " << name_of(spec.out_order);
}

void describe_rules(std::ostream& text, const CaseSpec& spec) {
  const ScoreRules& rules = spec.rules;
  if (rules.scale) text << ", scale " << *rules.scale;
  if (rules.softcap > 0) text << ", softcap " << rules.softcap;
  if (rules.window.causal) text << ", causal";
  if (rules.window.left >= 0 || rules.window.right >= 0) {
    text << ", window (" << rules.window.left << ", " << rules.window.right << ')';
  }
  if (spec.sinks) text << ", sinks " << leanattn::name_of(*spec.sinks);
  if (spec.alibi) text << ", alibi " << leanattn::name_of(*spec.alibi);
  if (spec.bias) {
    text << ", bias " << leanattn::name_of(*spec.bias) << " per"
         << (spec.bias_per_sequence ? " sequence" : "") << (spec.bias_per_head ? " head" : "")
         << (spec.bias_per_query ? " query" : "") << " key";
  }
  if (spec.tree == TreeKind::kTree) text << ", tree mask";
  if (spec.tree == TreeKind::kRandom) text << ", random tree mask";
}

}  // namespace

std::int64_t CaseSpec::max_length() const {
  return lengths.empty() ? 0 : *std::ranges::max_element(lengths);
}

std::int64_t CaseSpec::max_q_len() const {
  return q_lens.empty() ? 0 : *std::ranges::max_element(q_lens);
}

std::int64_t CaseSpec::num_queries() const {
  return std::accumulate(q_lens.begin(), q_lens.end(), std::int64_t{0});
}

std::string describe(const CaseSpec& spec) {
  std::ostringstream text;
  text << "seed " << spec.seed << ": batch " << spec.batch() << ", keys " << list(spec.lengths)
       << ", queries " << list(spec.q_lens) << (spec.ragged_q ? " (ragged)" : "") << ", heads "
       << spec.num_q_heads() << '/' << spec.num_kv_heads << ", head_dim " << spec.head_dim;
  if (spec.v_head_dim != spec.head_dim) text << '/' << spec.v_head_dim;
  text << ", q " << leanattn::name_of(spec.q_type) << " k " << leanattn::name_of(spec.k_type)
       << " v " << leanattn::name_of(spec.v_type) << " out " << leanattn::name_of(spec.out_type);
  describe_cache(text, spec);
  describe_rules(text, spec);
  if (!spec.with_lse) text << ", no lse";
  if (spec.q_amplitude != 1.0f) text << ", q times " << spec.q_amplitude;
  if (spec.poison == Poison::kInfinity) text << ", unused memory +inf";
  if (spec.poison == Poison::kZero) text << ", unused memory 0";
  return text.str();
}

}  // namespace leanattn::testing
