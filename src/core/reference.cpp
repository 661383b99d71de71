// The answer by the definition, in double precision, one score at a time: first
// all scores of a row, then its softmax, then its values.
//
// It is the yardstick of every backend, so it shares no arithmetic with them: no
// partition, no softmax state, no tiles. What a row does not see is never read.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/kv_access.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "leanattn/half.h"
#include "leanattn/problem.h"

namespace leanattn {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One query row of one head.
struct Row {
  std::int64_t sequence;
  std::int64_t query;  // within its sequence
  std::int64_t head;
  std::int64_t num_queries;  // of its sequence
  std::int64_t num_keys;     // of its sequence
  std::int64_t outer;        // its place in the first two dimensions of q, out and lse
  std::int64_t inner;

  /// Among the keys: the last query stands at the last key.
  [[nodiscard]] std::int64_t position() const { return num_keys - num_queries + query; }
};

class Reference {
 public:
  Reference(const Problem& problem, const Arguments& arguments)
      : problem_(problem),
        arguments_(arguments),
        q_(static_cast<std::size_t>(problem.head_dim)),
        k_(static_cast<std::size_t>(problem.head_dim)),
        v_(static_cast<std::size_t>(problem.v_head_dim)),
        out_(static_cast<std::size_t>(problem.v_head_dim)) {}

  void compute(const Row& row) {
    load(core::row_pointer(arguments_.q, {row.outer, row.inner}, row.head), arguments_.q.type, q_);
    double max = -kInfinity;
    collect_scores(row, max);
    const double sink = sink_of(row);
    if (sink > max) max = sink;
    double denominator = std::isinf(sink) && sink < 0 ? 0.0 : std::exp(sink - max);
    out_.assign(out_.size(), 0.0);
    for (const Score& score : scores_) {
      const double weight = std::exp(score.value - max);
      denominator += weight;
      load(core::row_pointer(arguments_.kv.v, core::slot_of(arguments_.kv, row.sequence, score.key),
                             kv_head(row)),
           arguments_.kv.v.type, v_);
      for (std::size_t d = 0; d < out_.size(); ++d) out_[d] += weight * v_[d];
    }
    write(row, max, denominator);
  }

 private:
  struct Score {
    std::int64_t key;
    double value;
  };

  static void load(const void* data, ElementType type, std::vector<double>& values) {
    switch (type) {
      case ElementType::kFloat16: return load<ElementType::kFloat16>(data, values);
      case ElementType::kBFloat16: return load<ElementType::kBFloat16>(data, values);
      default: return load<ElementType::kFloat32>(data, values);
    }
  }

  template <ElementType kType>
  static void load(const void* data, std::vector<double>& values) {
    for (std::size_t d = 0; d < values.size(); ++d) {
      values[d] = static_cast<double>(load_float(data, kType, static_cast<std::int64_t>(d)));
    }
  }

  [[nodiscard]] std::int64_t kv_head(const Row& row) const {
    return row.head / problem_.group_size();
  }

  [[nodiscard]] double sink_of(const Row& row) const {
    const TensorView<1>& sinks = arguments_.sinks;
    return sinks.given()
               ? static_cast<double>(load_float(sinks.data, sinks.type, sinks.offset(row.head)))
               : -kInfinity;
  }

  [[nodiscard]] bool visible(const Row& row, std::int64_t key) const {
    const Window& window = problem_.rules.window;
    const std::int64_t distance = row.position() - key;
    if (window.causal && distance < 0) return false;
    if (window.left >= 0 && distance > window.left) return false;
    if (window.right >= 0 && -distance > window.right) return false;
    const TensorView<3>& mask = arguments_.tree_mask;
    const std::int64_t newest = key - (row.num_keys - row.num_queries);
    if (!mask.given() || newest < 0) return true;
    return static_cast<const std::uint8_t*>(
               mask.data)[mask.offset(row.sequence, row.query, newest)] != 0;
  }

  /// What is added to the score; −∞ hides the key.
  [[nodiscard]] double bias(const Row& row, std::int64_t key) const {
    const TensorView<4>& bias = arguments_.bias;
    if (!bias.given()) return 0.0;
    const std::int64_t i = bias.offset(row.sequence, row.head, row.query, key);
    if (bias.type != ElementType::kBool) {
      return static_cast<double>(load_float(bias.data, bias.type, i));
    }
    return static_cast<const std::uint8_t*>(bias.data)[i] != 0 ? 0.0 : -kInfinity;
  }

  [[nodiscard]] double score(const Row& row, std::int64_t key) {
    load(core::row_pointer(arguments_.kv.k, core::slot_of(arguments_.kv, row.sequence, key),
                           kv_head(row)),
         arguments_.kv.k.type, k_);
    double s = 0.0;
    for (std::size_t d = 0; d < q_.size(); ++d) s += q_[d] * k_[d];
    s *= static_cast<double>(problem_.scale());
    const double cap = static_cast<double>(problem_.rules.softcap);
    if (cap > 0.0) s = cap * std::tanh(s / cap);
    const TensorView<1>& slopes = arguments_.alibi_slopes;
    if (slopes.given()) {
      const double slope =
          static_cast<double>(load_float(slopes.data, slopes.type, slopes.offset(row.head)));
      s -= slope * static_cast<double>(row.position() - key);
    }
    return s;
  }

  /// The scores of the keys that weigh something, and the largest of them.
  void collect_scores(const Row& row, double& max) {
    scores_.clear();
    for (std::int64_t key = 0; key < row.num_keys; ++key) {
      if (!visible(row, key)) continue;
      const double added = bias(row, key);
      if (added == -kInfinity) continue;
      const double s = score(row, key) + added;
      if (s == -kInfinity) continue;
      if (s > max) max = s;
      scores_.push_back({key, s});
    }
  }

  void write(const Row& row, double max, double denominator) const {
    const bool empty = denominator == 0.0;  // else a weight of exp(0) is in it, or a NaN
    void* out = core::row_pointer(arguments_.out, {row.outer, row.inner}, row.head);
    for (std::size_t d = 0; d < out_.size(); ++d) {
      store_float(out, arguments_.out.type, static_cast<std::int64_t>(d),
                  empty ? 0.0f : static_cast<float>(out_[d] / denominator));
    }
    const MutableTensorView<3>& lse = arguments_.lse;
    if (!lse.given()) return;
    static_cast<float*>(lse.data)[lse.offset(row.outer, row.inner, row.head)] =
        static_cast<float>(empty ? -kInfinity : max + std::log(denominator));
  }

  const Problem& problem_;
  const Arguments& arguments_;
  std::vector<double> q_, k_, v_, out_;
  std::vector<Score> scores_;
};

}  // namespace

void reference(const Arguments& arguments, const ScoreRules& rules) {
  const Problem problem = problem_of(arguments, rules);
  check_problem(problem);
  check<TypeMismatch>(problem.device.kind == Device::Kind::kHost, "q lies in memory of device ",
                      problem.device.index, "; the reference must be given host memory");
  check_arguments(problem, arguments);

  Reference definition(problem, arguments);
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    const bool ragged = problem.ragged_q;
    const std::int64_t first = ragged ? arguments.q_offsets[b] : 0;
    const std::int64_t num_queries =
        ragged ? arguments.q_offsets[b + 1] - first : problem.max_q_len;
    for (std::int64_t i = 0; i < num_queries; ++i) {
      for (std::int64_t head = 0; head < problem.num_q_heads; ++head) {
        definition.compute(
            {b, i, head, num_queries, arguments.lengths[b], ragged ? 0 : b, first + i});
      }
    }
  }
}

}  // namespace leanattn
