// A problem as a list of choices, before any memory is laid out. Random cases are
// drawn as one of these; a test that wants a certain kind of problem writes its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "leanattn/backend.h"
#include "leanattn/problem.h"
#include "testing/buffer.h"

namespace leanattn::testing {

/// The order of a cache's dimensions in memory.
enum class KvOrder : std::uint8_t {
  kNhd,          // [row, slot, head, dim]
  kHnd,          // [row, head, slot, dim]
  kPadded,       // any order, with gaps between all dimensions
  kInterleaved,  // [row, 2, slot, head, dim]: K and V in one buffer
};

/// The order of the queries' or the output's dimensions in memory.
enum class RowOrder : std::uint8_t {
  kContiguous,
  kPacked,  // q only: cut out of rows that hold q, k and v side by side
  kPadded,  // any order, with gaps between all dimensions
};

enum class TreeKind : std::uint8_t { kNone, kTree, kRandom };

struct CaseSpec {
  std::uint64_t seed = 1;  // of the values, page placement and gaps

  std::vector<std::int64_t> lengths;  // keys of each sequence
  std::vector<std::int64_t> q_lens;   // queries of each sequence; all equal unless ragged_q
  bool ragged_q = false;
  std::int64_t num_kv_heads = 1;
  std::int64_t group_size = 1;
  std::int64_t head_dim = 64;
  std::int64_t v_head_dim = 64;

  ElementType q_type = ElementType::kFloat32;
  ElementType k_type = ElementType::kFloat32;
  ElementType v_type = ElementType::kFloat32;
  ElementType out_type = ElementType::kFloat32;
  IndexType index_type = IndexType::kInt32;

  KvLayout layout = KvLayout::kContiguous;
  KvOrder kv_order = KvOrder::kNhd;
  RowOrder q_order = RowOrder::kContiguous;
  RowOrder out_order = RowOrder::kContiguous;
  std::int64_t page_size = 16;     // paged layouts
  std::int64_t spare = 0;          // contiguous: slots past the longest; paged: unused pages
  std::int64_t spare_columns = 0;  // page ids of no page behind each sequence's own
  bool in_order = false;           // pages lie in the order of the tokens
  bool shared_prefix = false;      // sequences share the pages that all of them fill
  bool cache_rows = false;         // contiguous: rows in random order, some unused

  ScoreRules rules;
  std::optional<ElementType> sinks;
  std::optional<ElementType> alibi;
  std::optional<ElementType> bias;  // kBool: which keys to keep
  bool bias_per_sequence = true;    // false: stride 0
  bool bias_per_head = true;
  bool bias_per_query = true;
  double bias_hides = 0.2;  // share of keys that the bias hides
  TreeKind tree = TreeKind::kNone;

  bool with_lse = true;
  float q_amplitude = 1.0f;
  Poison poison = Poison::kNaN;

  [[nodiscard]] std::int64_t batch() const { return static_cast<std::int64_t>(lengths.size()); }
  [[nodiscard]] std::int64_t num_q_heads() const { return num_kv_heads * group_size; }
  [[nodiscard]] std::int64_t max_length() const;
  [[nodiscard]] std::int64_t max_q_len() const;
  [[nodiscard]] std::int64_t num_queries() const;
  [[nodiscard]] bool paged() const { return layout != KvLayout::kContiguous; }
};

/// A type of q, k and v alike, with `out` of it or f32, and head dims that go with it.
struct TypeAndDims {
  ElementType type;
  std::int64_t head_dim;
  std::int64_t v_head_dim;
};

/// Which types and head dims are drawn. None: any mixture of types, any head dims.
using SpecLimits = std::vector<TypeAndDims>;

/// What `backend` computes: of a device, what it has kernels for; of a host, anything.
[[nodiscard]] SpecLimits limits_of(const Backend& backend);
/// "bf16 64, f16 192/128"
[[nodiscard]] std::string describe(const SpecLimits& limits);

/// A random spec over the whole feature table. The same seed and limits give the same spec
/// everywhere. Bounded so that the double-precision reference takes milliseconds.
[[nodiscard]] CaseSpec draw_spec(std::uint64_t seed, const SpecLimits& limits = {});

/// One line that names every choice.
[[nodiscard]] std::string describe(const CaseSpec& spec);

}  // namespace leanattn::testing
