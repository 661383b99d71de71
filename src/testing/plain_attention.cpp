// Scores and softmax in f32, P rounded to V's type, the output rounded once; and
// the units of error that belong to it.
#include "testing/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "leanattn/half.h"

namespace leanattn::testing {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kFloatUnit = 0x1p-24f;
constexpr float kLeastUnit = 1e-30f;       // where everything is zero
constexpr float kLeastNormal = 0x1p-126f;  // of f32
constexpr float kLeastNormalF16 = 0x1p-14f;
constexpr float kHalfStepF16 = 0x1p-25f;  // of what lies below it

float unit_roundoff(ElementType type) {
  switch (type) {
    case ElementType::kFloat16: return 0x1p-11f;
    case ElementType::kBFloat16: return 0x1p-8f;
    default: return kFloatUnit;
  }
}

float rounded(float value, ElementType type) {
  float stored = 0;
  store_float(&stored, type, 0, value);
  return load_float(&stored, type, 0);
}

float norm(const float* row, std::int64_t dim) {
  float sum = 0;
  for (std::int64_t d = 0; d < dim; ++d) sum += row[d] * row[d];
  return std::sqrt(sum);
}

// The keys and values of one sequence and KV head, as f32.
struct Tokens {
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> k_norm;
};

Tokens tokens_of(const Case& problem, std::int64_t b, std::int64_t kv_head) {
  const CaseSpec& spec = problem.spec;
  const std::int64_t n = spec.lengths[static_cast<std::size_t>(b)];
  Tokens tokens;
  for (std::int64_t j = 0; j < n; ++j) {
    const void* k = problem.k_row(b, j, kv_head);
    const void* v = problem.v_row(b, j, kv_head);
    for (std::int64_t d = 0; d < spec.head_dim; ++d) {
      tokens.k.push_back(load_float(k, spec.k_type, d));
    }
    for (std::int64_t d = 0; d < spec.v_head_dim; ++d) {
      tokens.v.push_back(load_float(v, spec.v_type, d));
    }
    tokens.k_norm.push_back(
        norm(&tokens.k[static_cast<std::size_t>(j * spec.head_dim)], spec.head_dim));
  }
  return tokens;
}

struct Row {
  std::int64_t b;
  std::int64_t h;
  std::int64_t i;
};

class PlainRow {
 public:
  PlainRow(const Case& problem, const Tokens& tokens, const Row& row)
      : problem_(problem), spec_(problem.spec), tokens_(tokens), row_(row) {}

  // Writes the row's v_head_dim outputs and units, its lse and unit.
  void compute(float* out, float* out_unit, float* lse, float* lse_unit) {
    make_scores();
    float max = kMinusInfinity;
    for (const float s : scores_) {
      if (s > max || std::isnan(s)) max = s;  // a NaN stays: its row is not empty
    }
    const auto dim = static_cast<std::size_t>(spec_.v_head_dim);
    std::fill_n(out, dim, 0.0f);
    std::fill_n(out_unit, dim, kLeastUnit);
    const TensorView<1>& sinks = problem_.arguments.sinks;
    const float sink = sinks.given() ? head_number(sinks) : kMinusInfinity;
    *lse = sink;
    *lse_unit = std::isinf(sink) ? kLeastUnit : kFloatUnit * (1.0f + 2 * std::fabs(sink));
    if (max == kMinusInfinity) return;
    if (!std::isinf(sink)) max_score_ = std::max(max_score_, std::fabs(sink));

    std::vector<float> magnitude(dim, 0.0f);
    std::vector<float> below_f16(dim, 0.0f);  // Σ |v| of weights below its normal range
    float sum = 0;
    for (std::size_t j = 0; j < scores_.size(); ++j) {
      if (scores_[j] == kMinusInfinity) continue;
      const float p = std::exp(scores_[j] - max);
      sum += p;
      const float weight = rounded(p, spec_.v_type);
      const float* v = &tokens_.v[j * dim];
      for (std::size_t d = 0; d < dim; ++d) {
        out[d] += weight * v[d];
        magnitude[d] += p * std::fabs(v[d]);
      }
      if (spec_.v_type != ElementType::kFloat16 || p >= kLeastNormalF16) continue;
      for (std::size_t d = 0; d < dim; ++d) below_f16[d] += std::fabs(v[d]);
    }
    const float top = std::max(max, sink);
    const float factor = std::exp(max - top);
    sum = sum * factor + std::exp(sink - top);
    const float noise = score_noise();
    *lse = top + std::log(sum);
    *lse_unit = noise + kFloatUnit * (2.0f + 2 * std::fabs(*lse));
    const float relative = unit_roundoff(spec_.v_type) + 2 * noise;
    for (std::size_t d = 0; d < dim; ++d) {
      out[d] *= factor / sum;
      out_unit[d] = output_unit(out[d]) + relative * magnitude[d] * factor / sum + kLeastUnit;
      // Below the normal range a weight has fewer bits, or none where it is flushed to 0.
      out_unit[d] += kLeastNormal * magnitude[d] / sum;
      out_unit[d] += kHalfStepF16 * below_f16[d] * factor / sum;
      out[d] = rounded(out[d], spec_.out_type);
    }
  }

 private:
  float head_number(const TensorView<1>& view) const {
    return load_float(view.data, view.type, view.offset(row_.h));
  }

  float output_unit(float value) const {
    const float unit = unit_roundoff(spec_.out_type) * std::fabs(value);
    return spec_.out_type == ElementType::kFloat16 ? std::max(unit, 0x1p-25f) : unit;
  }

  float score_noise() const {
    return kFloatUnit *
           (std::fabs(scale_) * q_norm_ * max_k_norm_ + max_score_ + spec_.rules.softcap);
  }

  // The scores of all keys; −∞ where hidden.
  void make_scores() {
    const std::int64_t n = spec_.lengths[static_cast<std::size_t>(row_.b)];
    const std::int64_t m = spec_.q_lens[static_cast<std::size_t>(row_.b)];
    std::vector<float> q;
    const void* q_row = problem_.q_row(row_.b, row_.i, row_.h);
    for (std::int64_t d = 0; d < spec_.head_dim; ++d) {
      q.push_back(load_float(q_row, spec_.q_type, d));
    }
    q_norm_ = norm(q.data(), spec_.head_dim);
    scale_ = spec_.rules.scale.value_or(1.0f / std::sqrt(static_cast<float>(spec_.head_dim)));
    const Arguments& arguments = problem_.arguments;
    const float slope = arguments.alibi_slopes.given() ? head_number(arguments.alibi_slopes) : 0;
    scores_.assign(static_cast<std::size_t>(n), kMinusInfinity);
    for (std::int64_t j = 0; j < n; ++j) {
      if (!problem_.visible(row_.b, row_.h, row_.i, j)) continue;
      const float* k = &tokens_.k[static_cast<std::size_t>(j * spec_.head_dim)];
      float s = 0;
      for (std::int64_t d = 0; d < spec_.head_dim; ++d) {
        s += q[static_cast<std::size_t>(d)] * k[d];
      }
      s *= scale_;
      if (spec_.rules.softcap > 0) s = spec_.rules.softcap * std::tanh(s / spec_.rules.softcap);
      s -= slope * static_cast<float>(n - m + row_.i - j);
      const TensorView<4>& bias = arguments.bias;
      if (bias.given() && bias.type != ElementType::kBool) {
        s += load_float(bias.data, bias.type, bias.offset(row_.b, row_.h, row_.i, j));
      }
      scores_[static_cast<std::size_t>(j)] = s;
      max_score_ = std::max(max_score_, std::fabs(s));
      max_k_norm_ = std::max(max_k_norm_, tokens_.k_norm[static_cast<std::size_t>(j)]);
    }
  }

  const Case& problem_;
  const CaseSpec& spec_;
  const Tokens& tokens_;
  Row row_;
  std::vector<float> scores_;
  float scale_ = 0;
  float q_norm_ = 0;
  float max_k_norm_ = 0;
  float max_score_ = 0;
};

}  // namespace

PlainResult plain_attention(const Case& problem) {
  const CaseSpec& spec = problem.spec;
  const std::int64_t rows = spec.num_queries() * spec.num_q_heads();
  PlainResult plain;
  plain.result.out.resize(static_cast<std::size_t>(rows * spec.v_head_dim));
  plain.result.lse.resize(static_cast<std::size_t>(rows));
  plain.out_unit.resize(plain.result.out.size());
  plain.lse_unit.resize(plain.result.lse.size());
  for (std::int64_t b = 0; b < spec.batch(); ++b) {
    const std::int64_t queries = spec.q_lens[static_cast<std::size_t>(b)];
    for (std::int64_t kv_head = 0; queries > 0 && kv_head < spec.num_kv_heads; ++kv_head) {
      const Tokens tokens = tokens_of(problem, b, kv_head);
      for (std::int64_t row = 0; row < queries * spec.group_size; ++row) {
        const std::int64_t i = row / spec.group_size;
        const std::int64_t h = kv_head * spec.group_size + row % spec.group_size;
        const auto at = static_cast<std::size_t>(
            (problem.first_query[static_cast<std::size_t>(b)] + i) * spec.num_q_heads() + h);
        const std::size_t element = at * static_cast<std::size_t>(spec.v_head_dim);
        PlainRow(problem, tokens, {b, h, i})
            .compute(&plain.result.out[element], &plain.out_unit[element], &plain.result.lse[at],
                     &plain.lse_unit[at]);
      }
    }
  }
  return plain;
}

}  // namespace leanattn::testing
