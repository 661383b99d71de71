// What is to be computed (Problem) and on which tensors (Arguments).
//
// A Problem holds shapes, types, maxima and rules; it is all that planning sees.
// Arguments hold pointers; lengths are read only when a plan runs.
#pragma once

#include <cstdint>
#include <optional>

#include "leanattn/tensor.h"
#include "leanattn/visibility.h"

namespace leanattn {

/// How a score is made from q·k and which keys are visible.
///
///   s = scale·(q·k);  softcap c: s = c·tanh(s/c);  ALiBi: s −= slope·(p − j);
///   bias: s += bias;  hidden keys leave;  softmax, with the sink in the
///   denominator only.
struct ScoreRules {
  std::optional<float> scale;  // default 1/√head_dim
  float softcap = 0.0f;        // 0: none
  Window window;               // nothing hidden by default

  friend bool operator==(const ScoreRules&, const ScoreRules&) = default;
};

/// The shape of a call. Query head h reads KV head h / (num_q_heads /
/// num_kv_heads).
struct Problem {
  std::int64_t batch = 0;
  std::int64_t max_q_len = 1;    // most queries of one sequence
  std::int64_t num_queries = 0;  // queries of all sequences (uniform: batch·max_q_len)
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t v_head_dim = 0;
  std::int64_t max_kv_len = 0;  // most keys of one sequence that a run will see

  ElementType q_type = ElementType::kFloat32;
  ElementType k_type = ElementType::kFloat32;
  ElementType v_type = ElementType::kFloat32;
  ElementType out_type = ElementType::kFloat32;

  KvLayout layout = KvLayout::kContiguous;
  std::int64_t page_size = 0;  // paged layouts only
  bool ragged_q = false;       // sequences differ in their number of queries

  ScoreRules rules;
  bool has_sinks = false;
  bool has_alibi = false;
  bool has_bias = false;
  bool has_tree_mask = false;
  Device device{};

  /// Query heads that share a KV head.
  [[nodiscard]] std::int64_t group_size() const { return num_q_heads / num_kv_heads; }
  /// Rows of a sequence with `q_len` queries, packed over the group.
  [[nodiscard]] std::int64_t packed_rows(std::int64_t q_len) const { return group_size() * q_len; }
  /// The scale that is applied.
  [[nodiscard]] float scale() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// The tensors of one call. Whatever is not given is left default; whatever is
/// given must have been announced in the Problem.
struct Arguments {
  /// [batch, q_len, q_heads, head_dim]; ragged: [1, num_queries, q_heads, head_dim].
  TensorView<4> q;
  KvView kv;
  /// [batch] number of keys of each sequence, from 0 to the capacity.
  IndexView lengths;
  /// [batch + 1] ragged only: sequence b owns queries q_offsets[b] … q_offsets[b + 1] − 1.
  IndexView q_offsets;

  /// [q_heads] natural-log sink logits, any floating type.
  TensorView<1> sinks;
  /// [q_heads] ALiBi slopes, any floating type.
  TensorView<1> alibi_slopes;
  /// [batch, q_heads, max_q_len, max_kv_len]: added to the score (floating; −∞ hides the
  /// key), or which keys to keep (bool). Strides of 0 broadcast.
  TensorView<4> bias;
  /// [batch, max_q_len, max_q_len] bool: whether query i sees the j-th of the newest q_len keys.
  TensorView<3> tree_mask;

  /// [batch, q_len, q_heads, v_head_dim], or [1, num_queries, …]: of q's type or f32.
  MutableTensorView<4> out;
  /// Optional, f32, shaped as `out` without its last dimension: natural log of the denominator.
  MutableTensorView<3> lse;
};

/// The problem that `arguments` pose under `rules`. Reads no tensor but, in host
/// memory, the lengths and query offsets, whose largest values become max_kv_len
/// and max_q_len; in device memory the capacity stands for the lengths.
[[nodiscard]] Problem problem_of(const Arguments& arguments, const ScoreRules& rules = {});

/// Throws InvalidArgument unless the numbers of `problem` make sense together.
void check_problem(const Problem& problem);

/// Throws InvalidArgument or TypeMismatch unless `arguments` are what `problem`
/// announced: shapes, types, strides, memory kinds and, in host memory, lengths
/// within capacity and page ids within the cache. Writes nothing.
void check_arguments(const Problem& problem, const Arguments& arguments);

}  // namespace leanattn
