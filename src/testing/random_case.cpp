// Finding rows in the memory of a case, and the rule of what a query sees.
#include "testing/random_case.h"

#include <limits>

#include "leanattn/half.h"

namespace leanattn::testing {
namespace {

void* at(const void* data, std::int64_t offset, ElementType type) {
  return const_cast<std::byte*>(static_cast<const std::byte*>(data)) + offset * size_of(type);
}

// Where token j of sequence b lies: {cache row or page, slot}.
std::pair<std::int64_t, std::int64_t> token_place(const KvView& kv, std::int64_t b,
                                                  std::int64_t j) {
  if (kv.layout == KvLayout::kContiguous) {
    return {kv.cache_rows.given() ? kv.cache_rows[b] : b, j};
  }
  const std::int64_t page = j / kv.page_size();
  const std::int64_t id = kv.layout == KvLayout::kPagedDense
                              ? kv.page_table.at(b, page)
                              : kv.page_ids[kv.page_indptr[b] + page];
  return {id, j % kv.page_size()};
}

void* token_row(const KvView& kv, const TensorView<4>& tensor, std::int64_t b, std::int64_t j,
                std::int64_t head) {
  const auto [row, slot] = token_place(kv, b, j);
  return at(tensor.data, tensor.offset(row, slot, head), tensor.type);
}

void set_row(void* row, ElementType type, std::int64_t dim, float value) {
  for (std::int64_t d = 0; d < dim; ++d) store_float(row, type, d, value);
}

bool bias_keeps(const TensorView<4>& bias, std::int64_t b, std::int64_t h, std::int64_t i,
                std::int64_t j) {
  const std::int64_t offset = bias.offset(b, h, i, j);
  if (bias.type == ElementType::kBool) {
    return static_cast<const std::uint8_t*>(bias.data)[offset] != 0;
  }
  return load_float(bias.data, bias.type, offset) != -std::numeric_limits<float>::infinity();
}

}  // namespace

bool Case::visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
  const std::int64_t n = spec.lengths[static_cast<std::size_t>(b)];
  const std::int64_t m = spec.q_lens[static_cast<std::size_t>(b)];
  if (!sees(spec.rules.window, n - m + i, j)) return false;
  const TensorView<3>& tree = arguments.tree_mask;
  const std::int64_t newest = j - (n - m);
  if (tree.given() && newest >= 0 &&
      static_cast<const std::uint8_t*>(tree.data)[tree.offset(b, i, newest)] == 0) {
    return false;
  }
  return !arguments.bias.given() || bias_keeps(arguments.bias, b, h, i, j);
}

void* Case::q_row(std::int64_t b, std::int64_t i, std::int64_t h) const {
  const TensorView<4>& q = arguments.q;
  const std::int64_t offset = spec.ragged_q
                                  ? q.offset(0, first_query[static_cast<std::size_t>(b)] + i, h)
                                  : q.offset(b, i, h);
  return at(q.data, offset, q.type);
}

void* Case::k_row(std::int64_t b, std::int64_t j, std::int64_t kv_head) const {
  return token_row(arguments.kv, arguments.kv.k, b, j, kv_head);
}

void* Case::v_row(std::int64_t b, std::int64_t j, std::int64_t kv_head) const {
  return token_row(arguments.kv, arguments.kv.v, b, j, kv_head);
}

void Case::set_q(std::int64_t b, std::int64_t i, std::int64_t h, float value) const {
  set_row(q_row(b, i, h), spec.q_type, spec.head_dim, value);
}

void Case::set_k(std::int64_t b, std::int64_t j, std::int64_t kv_head, float value) const {
  set_row(k_row(b, j, kv_head), spec.k_type, spec.head_dim, value);
}

void Case::set_v(std::int64_t b, std::int64_t j, std::int64_t kv_head, float value) const {
  set_row(v_row(b, j, kv_head), spec.v_type, spec.v_head_dim, value);
}

void Case::reset_output() const {
  out.reset();
  if (arguments.lse.given()) lse.reset();
}

std::uint64_t Case::input_hash() const {
  std::uint64_t sum = 0;
  for (const Buffer& input : inputs) sum = sum * 31 + input.hash();
  return sum;
}

}  // namespace leanattn::testing
