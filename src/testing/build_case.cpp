// Lays out and fills the memory of a spec. What must stay true: an element that no
// query may observe keeps its poison; the same spec gives the same bytes.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "leanattn/half.h"
#include "testing/random_bits.h"
#include "testing/random_case.h"

namespace leanattn::testing {
namespace {

constexpr std::size_t kOutputTail = 256;  // bytes of canary behind out and lse
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <std::size_t R>
struct Layout {
  std::array<std::int64_t, R> strides{};
  std::int64_t extent = 0;  // elements from the first to the last of the tensor
};

// Strides of `shape` when the dimensions lie in memory as `outer_to_inner` says,
// with random gaps if `gaps` is given. Dimensions not listed get stride 0.
template <std::size_t R>
Layout<R> lay_out(const std::array<std::int64_t, R>& shape, const std::vector<int>& outer_to_inner,
                  RandomBits* gaps = nullptr) {
  Layout<R> layout;
  std::int64_t stride = 1;
  for (auto it = outer_to_inner.rbegin(); it != outer_to_inner.rend(); ++it) {
    layout.strides[static_cast<std::size_t>(*it)] = stride;
    stride *= std::max<std::int64_t>(shape[static_cast<std::size_t>(*it)], 1);
    if (gaps != nullptr) stride += gaps->between(0, 5);
  }
  layout.extent = 1;
  for (std::size_t d = 0; d < R; ++d) layout.extent += (shape[d] - 1) * layout.strides[d];
  if (std::ranges::find(shape, 0) != shape.end()) layout.extent = 0;
  return layout;
}

class Builder {
 public:
  explicit Builder(const CaseSpec& spec) : bits_(spec.seed * 0x2545f4914f6cdd1du + 1) {
    result_.spec = spec;
  }

  Case build() {
    place_queries();
    place_tables(place_pages());
    place_output();
    result_.arguments.lengths = store_indices(spec().lengths, 1);
    place_head_numbers();
    place_tree();
    place_bias();
    fill_queries();
    fill_cache();
    return std::move(result_);
  }

 private:
  const CaseSpec& spec() const { return result_.spec; }

  // A new input buffer of `count` elements, poisoned.
  std::byte* new_input(ElementType type, std::int64_t count) {
    Buffer buffer(static_cast<std::size_t>(count * size_of(type)));
    buffer.fill(spec().poison, type);
    result_.inputs.push_back(std::move(buffer));
    return result_.inputs.back().data();
  }

  IndexView store_indices(const std::vector<std::int64_t>& values, std::int64_t rows) {
    const bool wide = spec().index_type == IndexType::kInt64;
    Buffer buffer(values.size() * (wide ? 8 : 4));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (wide) {
        reinterpret_cast<std::int64_t*>(buffer.data())[i] = values[i];
      } else {
        reinterpret_cast<std::int32_t*>(buffer.data())[i] = static_cast<std::int32_t>(values[i]);
      }
    }
    const std::int64_t columns = rows > 0 ? static_cast<std::int64_t>(values.size()) / rows : 0;
    result_.inputs.push_back(std::move(buffer));
    return {result_.inputs.back().data(), spec().index_type, rows, columns, columns, {}};
  }

  // [batch, q_len, q_heads, dim], or [1, num_queries, …].
  std::array<std::int64_t, 4> row_shape(std::int64_t dim) const {
    if (spec().ragged_q) return {1, spec().num_queries(), spec().num_q_heads(), dim};
    return {spec().batch(), spec().max_q_len(), spec().num_q_heads(), dim};
  }

  std::vector<int> random_order(int num_outer) {
    std::vector<int> order(static_cast<std::size_t>(num_outer));
    std::iota(order.begin(), order.end(), 0);
    bits_.shuffle(order);
    return order;
  }

  template <std::size_t R>
  Layout<R> row_layout(RowOrder order, const std::array<std::int64_t, R>& shape) {
    std::vector<int> dims{0, 1, 2};
    if (order == RowOrder::kPadded) dims = random_order(3);
    if constexpr (R == 4) dims.push_back(3);
    return lay_out(shape, dims, order == RowOrder::kPadded ? &bits_ : nullptr);
  }

  void place_queries() {
    std::vector<std::int64_t>& first = result_.first_query;
    first.assign(1, 0);
    for (const std::int64_t m : spec().q_lens) first.push_back(first.back() + m);
    if (spec().ragged_q) result_.arguments.q_offsets = store_indices(first, 1);

    const auto shape = row_shape(spec().head_dim);
    TensorView<4>& q = result_.arguments.q;
    if (spec().q_order == RowOrder::kPacked) {
      const std::int64_t heads = spec().num_q_heads() + 2 * spec().num_kv_heads;
      const auto packed = lay_out<4>({shape[0], shape[1], heads, shape[3]}, {0, 1, 2, 3});
      q = {new_input(spec().q_type, packed.extent), spec().q_type, shape, packed.strides, {}};
    } else {
      const auto layout = row_layout(spec().q_order, shape);
      q = {new_input(spec().q_type, layout.extent), spec().q_type, shape, layout.strides, {}};
    }
  }

  void place_output() {
    const auto shape = row_shape(spec().v_head_dim);
    const auto out = row_layout(spec().out_order, shape);
    result_.out =
        Buffer(static_cast<std::size_t>(out.extent * size_of(spec().out_type)), kOutputTail);
    result_.arguments.out = {result_.out.data(), spec().out_type, shape, out.strides, {}};
    if (!spec().with_lse) return;
    const std::array<std::int64_t, 3> lse_shape{shape[0], shape[1], shape[2]};
    const auto lse = row_layout(spec().out_order, lse_shape);
    result_.lse = Buffer(static_cast<std::size_t>(lse.extent) * 4, kOutputTail);
    result_.arguments.lse = {result_.lse.data(), ElementType::kFloat32, lse_shape, lse.strides, {}};
  }

  // The views of K and V: `rows` cache rows or pages of `slots` tokens.
  void place_cache(std::int64_t rows, std::int64_t slots) {
    KvView& kv = result_.arguments.kv;
    const CaseSpec& s = spec();
    const std::array<std::int64_t, 4> k_shape{rows, slots, s.num_kv_heads, s.head_dim};
    const std::array<std::int64_t, 4> v_shape{rows, slots, s.num_kv_heads, s.v_head_dim};
    if (s.kv_order == KvOrder::kInterleaved) {
      const std::int64_t dim = std::max(s.head_dim, s.v_head_dim);
      const auto both = lay_out<5>({rows, 2, slots, s.num_kv_heads, dim}, {0, 1, 2, 3, 4});
      const auto& strides = both.strides;
      const std::array<std::int64_t, 4> kept{strides[0], strides[2], strides[3], 1};
      std::byte* data = new_input(s.k_type, both.extent);
      kv.k = {data, s.k_type, k_shape, kept, {}};
      kv.v = {data + strides[1] * size_of(s.k_type), s.k_type, v_shape, kept, {}};
      return;
    }
    std::vector<int> order{0, 1, 2};
    if (s.kv_order == KvOrder::kHnd) order = {0, 2, 1};
    if (s.kv_order == KvOrder::kPadded) order = random_order(3);
    order.push_back(3);
    RandomBits* gaps = s.kv_order == KvOrder::kPadded ? &bits_ : nullptr;
    const auto k = lay_out(k_shape, order, gaps);
    const auto v = lay_out(v_shape, order, gaps);
    kv.k = {new_input(s.k_type, k.extent), s.k_type, k_shape, k.strides, {}};
    kv.v = {new_input(s.v_type, v.extent), s.v_type, v_shape, v.strides, {}};
  }

  // The page ids of each sequence; contiguous: its cache row.
  std::vector<std::vector<std::int64_t>> place_pages() {
    const CaseSpec& s = spec();
    result_.arguments.kv.layout = s.layout;
    const auto batch = static_cast<std::size_t>(s.batch());
    std::vector<std::vector<std::int64_t>> pages(batch);
    if (!s.paged()) {
      const std::int64_t rows = s.batch() + (s.cache_rows ? s.spare % 3 : 0);
      place_cache(rows, s.max_length() + s.spare);
      std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
      std::iota(order.begin(), order.end(), 0);
      if (s.cache_rows) bits_.shuffle(order);
      for (std::size_t b = 0; b < batch; ++b) pages[b] = {order[b]};
      return pages;
    }
    std::int64_t shared = s.shared_prefix && batch > 1 ? s.max_length() / s.page_size : 0;
    for (const std::int64_t n : s.lengths) shared = std::min(shared, n / s.page_size);
    std::int64_t used = shared;
    for (const std::int64_t n : s.lengths) used += ceil_div(n, s.page_size) - shared;
    place_cache(used + s.spare, s.page_size);
    std::vector<std::int64_t> order(static_cast<std::size_t>(used + s.spare));
    std::iota(order.begin(), order.end(), 0);
    if (!s.in_order) bits_.shuffle(order);
    auto next = order.begin() + shared;
    for (std::size_t b = 0; b < batch; ++b) {
      pages[b].assign(order.begin(), order.begin() + shared);
      const std::int64_t own = ceil_div(s.lengths[b], s.page_size) - shared;
      pages[b].insert(pages[b].end(), next, next + own);
      next += own;
    }
    return pages;
  }

  // A page id for a slot that nobody may read: of no page, or of somebody else's.
  std::int64_t garbage_page() {
    const std::int64_t pages = result_.arguments.kv.k.shape[0];
    return bits_.pick<std::int64_t>({-1, pages, pages + 12345, std::numeric_limits<int>::max(),
                                     std::numeric_limits<int>::min(), 0});
  }

  void place_tables(const std::vector<std::vector<std::int64_t>>& pages) {
    KvView& kv = result_.arguments.kv;
    const CaseSpec& s = spec();
    if (s.layout == KvLayout::kContiguous) {
      if (!s.cache_rows) return;
      std::vector<std::int64_t> rows;
      for (const auto& row : pages) rows.push_back(row[0]);
      kv.cache_rows = store_indices(rows, 1);
    } else if (s.layout == KvLayout::kPagedDense) {
      const std::int64_t width = ceil_div(s.max_length(), s.page_size) + s.spare_columns;
      std::vector<std::int64_t> table;
      for (const auto& row : pages) {
        table.insert(table.end(), row.begin(), row.end());
        const auto size = static_cast<std::int64_t>(row.size());
        for (std::int64_t i = size; i < width; ++i) table.push_back(garbage_page());
      }
      kv.page_table = store_indices(table, s.batch());
    } else {
      std::vector<std::int64_t> ids;
      std::vector<std::int64_t> indptr{0};
      for (const auto& row : pages) {
        ids.insert(ids.end(), row.begin(), row.end());
        for (std::int64_t i = 0; i < s.spare_columns; ++i) ids.push_back(garbage_page());
        indptr.push_back(static_cast<std::int64_t>(ids.size()));
      }
      kv.page_ids = store_indices(ids, 1);
      kv.page_indptr = store_indices(indptr, 1);
    }
  }

  // Sinks and slopes: one number per query head.
  void place_head_numbers() {
    const std::int64_t heads = spec().num_q_heads();
    if (spec().sinks) {
      const ElementType type = *spec().sinks;
      std::byte* data = new_input(type, heads);
      for (std::int64_t h = 0; h < heads; ++h) {
        store_float(data, type, h, bits_.chance(0.03) ? kMinusInfinity : 2 * bits_.normal());
      }
      result_.arguments.sinks = {data, type, {heads}, {1}, {}};
    }
    if (spec().alibi) {
      const ElementType type = *spec().alibi;
      std::byte* data = new_input(type, heads);
      for (std::int64_t h = 0; h < heads; ++h) {
        store_float(data, type, h, static_cast<float>(bits_.uniform()) * bits_.pick({0.5f, 0.02f}));
      }
      result_.arguments.alibi_slopes = {data, type, {heads}, {1}, {}};
    }
  }

  // Row i of a tree sees itself and its ancestors.
  void place_tree() {
    if (spec().tree == TreeKind::kNone) return;
    const std::int64_t m = spec().max_q_len();
    const std::array<std::int64_t, 3> shape{spec().batch(), m, m};
    const auto layout = lay_out(shape, {0, 1, 2}, &bits_);
    std::byte* data = new_input(ElementType::kBool, layout.extent);
    const TensorView<3> view{data, ElementType::kBool, shape, layout.strides, {}};
    result_.arguments.tree_mask = view;
    for (std::int64_t b = 0; b < spec().batch(); ++b) {
      const std::int64_t rows = spec().q_lens[static_cast<std::size_t>(b)];
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t parent = bits_.between(-1, i - 1);
        for (std::int64_t j = 0; j < rows; ++j) {
          bool keep = bits_.chance(0.6);
          if (spec().tree == TreeKind::kTree) {
            keep = j == i || (parent >= 0 && j < i && data[view.offset(b, parent, j)] == kTrue);
          }
          data[view.offset(b, i, j)] = keep ? kTrue : std::byte{0};
        }
      }
    }
  }

  // Written only where a query could look: within the lengths and the window.
  void place_bias() {
    if (!spec().bias) return;
    const CaseSpec& s = spec();
    const ElementType type = *s.bias;
    const std::array<std::int64_t, 4> shape{s.batch(), s.num_q_heads(), s.max_q_len(),
                                            s.max_length()};
    const bool varies[]{s.bias_per_sequence, s.bias_per_head, s.bias_per_query, true};
    std::vector<int> order;
    for (const int dim : random_order(4)) {
      if (varies[dim]) order.push_back(dim);
    }
    const auto layout = lay_out(shape, order, &bits_);
    std::byte* data = new_input(type, layout.extent);
    const TensorView<4> view{data, type, shape, layout.strides, {}};
    result_.arguments.bias = view;
    if (layout.extent == 0) return;
    for (std::int64_t b = 0; b < (s.bias_per_sequence ? s.batch() : 1); ++b) {
      for (std::int64_t h = 0; h < (s.bias_per_head ? shape[1] : 1); ++h) {
        for (std::int64_t i = 0; i < (s.bias_per_query ? shape[2] : 1); ++i) {
          for (std::int64_t j = 0; j < shape[3]; ++j) {
            if (!reachable(b, i, j)) continue;
            const bool hide = bits_.chance(s.bias_hides);
            const std::int64_t at = view.offset(b, h, i, j);
            if (type == ElementType::kBool) {
              data[at] = hide ? std::byte{0} : kTrue;
            } else {
              store_float(data, type, at, hide ? kMinusInfinity : 0.7f * bits_.normal());
            }
          }
        }
      }
    }
  }

  // Whether an element of the bias can be looked at. Broadcast ones: always.
  bool reachable(std::int64_t b, std::int64_t i, std::int64_t j) const {
    if (!spec().bias_per_sequence || !spec().bias_per_query) return true;
    const std::int64_t n = spec().lengths[static_cast<std::size_t>(b)];
    const std::int64_t m = spec().q_lens[static_cast<std::size_t>(b)];
    return i < m && j < n && sees(spec().rules.window, n - m + i, j);
  }

  void fill_row(const void* row, ElementType type, std::int64_t dim, float amplitude) {
    auto* data = const_cast<void*>(row);
    for (std::int64_t d = 0; d < dim; ++d) store_float(data, type, d, amplitude * bits_.normal());
  }

  void fill_queries() {
    for (std::int64_t b = 0; b < spec().batch(); ++b) {
      for (std::int64_t i = 0; i < spec().q_lens[static_cast<std::size_t>(b)]; ++i) {
        for (std::int64_t h = 0; h < spec().num_q_heads(); ++h) {
          fill_row(result_.q_row(b, i, h), spec().q_type, spec().head_dim, spec().q_amplitude);
        }
      }
    }
  }

  bool seen_by_anyone(std::int64_t b, std::int64_t kv_head, std::int64_t j) const {
    const std::int64_t first = kv_head * spec().group_size;
    for (std::int64_t h = first; h < first + spec().group_size; ++h) {
      for (std::int64_t i = 0; i < spec().q_lens[static_cast<std::size_t>(b)]; ++i) {
        if (result_.visible(b, h, i, j)) return true;
      }
    }
    return false;
  }

  void fill_cache() {
    for (std::int64_t b = 0; b < spec().batch(); ++b) {
      for (std::int64_t head = 0; head < spec().num_kv_heads; ++head) {
        for (std::int64_t j = 0; j < spec().lengths[static_cast<std::size_t>(b)]; ++j) {
          if (!seen_by_anyone(b, head, j)) continue;
          fill_row(result_.k_row(b, j, head), spec().k_type, spec().head_dim, 1.0f);
          fill_row(result_.v_row(b, j, head), spec().v_type, spec().v_head_dim, 1.0f);
        }
      }
    }
  }

  static constexpr std::byte kTrue{1};

  RandomBits bits_;
  Case result_;
};

}  // namespace

Case build_case(const CaseSpec& spec) { return Builder(spec).build(); }

}  // namespace leanattn::testing
