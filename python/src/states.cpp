#include "states.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "array.h"
#include "call.h"
#include "leanattn/attention.h"

namespace leanattn::python {
namespace {

/// Slice `i` of dimension `dimension`, which leaves the shape.
Array slice(const Array& array, int dimension, std::int64_t i) {
  Array part = array;
  const auto d = static_cast<std::size_t>(dimension);
  if (part.data != nullptr) {
    part.data = static_cast<std::byte*>(part.data) + i * array.strides[d] * (array.type.bits / 8);
  }
  std::copy(array.shape.begin() + dimension + 1, array.shape.end(), part.shape.begin() + dimension);
  std::copy(array.strides.begin() + dimension + 1, array.strides.end(),
            part.strides.begin() + dimension);
  --part.rank;
  return part;
}

/// An array of the results, and where its dimension of sequences would be.
struct Operand {
  const Array* array;
  int rank;  // without one
};

/// Calls merge(arrays) for each sequence where the arrays have a dimension of them, else once.
/// `batch_at` is that dimension in operands with parts in front (1), else 0.
template <class Merge>
void for_each_sequence(const std::vector<Operand>& operands, const std::vector<int>& batch_at,
                       const Merge& merge) {
  std::vector<Array> arrays;
  for (const Operand& operand : operands) arrays.push_back(*operand.array);
  const bool batched = arrays[0].rank == operands[0].rank + 1;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const int rank = operands[i].rank + (batched ? 1 : 0);
    check_rank(arrays[i], rank, concat("as many as ", arrays[0].name, " asks for"));
    check<TypeMismatch>(arrays[i].device == Device{}, arrays[i].name, " lies in memory of device ",
                        arrays[i].device.index, "; it must lie in host memory");
  }
  if (!batched) {
    merge(arrays);
    return;
  }
  const std::int64_t batch = arrays[0].shape[static_cast<std::size_t>(batch_at[0])];
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::int64_t extent = arrays[i].shape[static_cast<std::size_t>(batch_at[i])];
    check(extent == batch, arrays[i].name, " has ", extent, " sequences; it must have ", batch,
          ", as ", arrays[0].name);
  }
  for (std::int64_t b = 0; b < batch; ++b) {
    std::vector<Array> parts;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      parts.push_back(slice(arrays[i], batch_at[i], b));
    }
    merge(parts);
  }
}

constexpr std::string_view kOut = "[rows, heads, v_head_dim]";
constexpr std::string_view kLse = "[rows, heads]";

}  // namespace

void merge_two(const nb::dict& objects) {
  Arrays named(objects);
  const std::vector<Operand> operands = {{&named.get("out_a"), 3},
                                         {&named.get("lse_a"), 2},
                                         {&named.get("out_b"), 3},
                                         {&named.get("lse_b"), 2},
                                         {&named.get("out", Access::kWrite), 3},
                                         {&named.get("lse", Access::kWrite), 2}};
  for_each_sequence(operands, {0, 0, 0, 0, 0, 0}, [](const std::vector<Array>& arrays) {
    const auto out_a = as_const(tensor<3>(arrays[0], kOut));
    const auto lse_a = as_const(tensor<2>(arrays[1], kLse));
    const auto out_b = as_const(tensor<3>(arrays[2], kOut));
    const auto lse_b = as_const(tensor<2>(arrays[3], kLse));
    const auto out = tensor<3>(arrays[4], kOut);
    const auto lse = tensor<2>(arrays[5], kLse);
    const nb::gil_scoped_release released;
    leanattn::merge_states(out_a, lse_a, out_b, lse_b, out, lse);
  });
}

void merge_parts(const nb::dict& objects) {
  Arrays named(objects);
  const std::vector<Operand> operands = {{&named.get("outs"), 4},
                                         {&named.get("lses"), 3},
                                         {&named.get("out", Access::kWrite), 3},
                                         {&named.get("lse", Access::kWrite), 2}};
  for_each_sequence(operands, {1, 1, 0, 0}, [](const std::vector<Array>& arrays) {
    const auto outs = as_const(tensor<4>(arrays[0], "[parts, rows, heads, v_head_dim]"));
    const auto lses = as_const(tensor<3>(arrays[1], "[parts, rows, heads]"));
    const auto out = tensor<3>(arrays[2], kOut);
    const auto lse = tensor<2>(arrays[3], kLse);
    const nb::gil_scoped_release released;
    leanattn::merge_states(outs, lses, out, lse);
  });
}

void append(std::string_view layout, const nb::dict& objects) {
  Arrays named(objects);
  const bool hnd = is_hnd(layout);
  const IndexView offsets = named.find_vector("offsets");
  const auto new_rows = [&](const char* name) {
    const Array& array = named.get(name);
    return as_const(offsets.given()
                        ? as_one(tensor<3>(array, "with offsets [num_new, kv_heads, dim]"))
                        : tensor<4>(array, "[batch, new_len, kv_heads, dim]"));
  };
  const TensorView<4> k = new_rows("k");
  const TensorView<4> v = new_rows("v");
  const IndexView lengths = index_vector(named.get("lengths"));
  const Array& k_cache = named.get("k_cache", Access::kWrite);
  const Array& v_cache = named.get("v_cache", Access::kWrite);
  const MutableKvView cache = cache_of(named, k_cache, v_cache, hnd);
  const nb::gil_scoped_release released;
  leanattn::append_kv(k, v, offsets, lengths, cache);
}

}  // namespace leanattn::python
