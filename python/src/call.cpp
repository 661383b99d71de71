#include "call.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace leanattn::python {
namespace {

constexpr std::string_view kUniform = "[batch, q_len, heads, head_dim]";
constexpr std::string_view kRagged = "with q_offsets [num_queries, heads, head_dim]";

/// [batch, q_len, …], or with q_offsets [num_queries, …] as a batch of one.
template <int kRank>
MutableTensorView<kRank> queries(const Array& array, bool ragged, std::string_view uniform_dims,
                                 std::string_view ragged_dims) {
  if (ragged) return as_one(tensor<kRank - 1>(array, ragged_dims));
  return tensor<kRank>(array, uniform_dims);
}

}  // namespace

const Array* NamedArrays::find(const char* name, Access access) {
  const nb::object object = objects_.contains(name) ? nb::object(objects_[name]) : nb::none();
  if (object.is_none()) return nullptr;
  return &arrays_.emplace_back(import_array(name, object, access));
}

const Array& NamedArrays::get(const char* name, Access access) {
  const Array* array = find(name, access);
  check<TypeMismatch>(array != nullptr, name, " is None; it must be an array");
  return *array;
}

IndexView NamedArrays::find_vector(const char* name) {
  const Array* array = find(name);
  return array == nullptr ? IndexView{} : index_vector(*array);
}

bool is_hnd(std::string_view layout) {
  check(layout == "NHD" || layout == "HND", "layout is ", layout, "; allowed are NHD and HND");
  return layout == "HND";
}

MutableKvView cache_of(NamedArrays& arrays, const char* k_name, const char* v_name, bool hnd,
                       Access access) {
  const std::string_view dimensions =
      hnd ? "[rows or pages, kv_heads, capacity or page_size, dim] for HND"
          : "[rows or pages, capacity or page_size, kv_heads, dim] for NHD";
  MutableKvView kv;
  kv.k = tensor<4>(arrays.get(k_name, access), dimensions);
  kv.v = tensor<4>(arrays.get(v_name, access), dimensions);
  if (hnd) {
    for (MutableTensorView<4>* view : {&kv.k, &kv.v}) {
      std::swap(view->shape[1], view->shape[2]);
      std::swap(view->strides[1], view->strides[2]);
    }
  }
  if (const Array* table = arrays.find("page_table")) kv.page_table = index_table(*table);
  kv.page_ids = arrays.find_vector("page_ids");
  kv.page_indptr = arrays.find_vector("page_indptr");
  kv.cache_rows = arrays.find_vector("cache_rows");
  if (kv.page_ids.given() || kv.page_indptr.given()) {
    kv.layout = KvLayout::kPagedCsr;
  } else if (kv.page_table.given()) {
    kv.layout = KvLayout::kPagedDense;
  }
  return kv;
}

Call::Call(std::string_view layout, const nb::dict& objects) : arrays_(objects) {
  take_tensors(is_hnd(layout));
  take_lengths();
}

void Call::take_tensors(bool hnd) {
  arguments_.q_offsets = arrays_.find_vector("q_offsets");
  arguments_.q = as_const(queries<4>(arrays_.get("q"), ragged(), kUniform, kRagged));
  arguments_.kv = as_const(cache_of(arrays_, "k", "v", hnd, Access::kRead));
  for (const auto& [name, view] : {std::pair{"sinks", &arguments_.sinks},
                                   std::pair{"alibi_slopes", &arguments_.alibi_slopes}}) {
    if (const Array* array = arrays_.find(name)) *view = as_const(tensor<1>(*array, "[heads]"));
  }
  if (const Array* bias = arrays_.find("bias")) {
    arguments_.bias = as_const(tensor<4>(*bias, "[batch, heads, q_len, kv_len]"));
  }
  if (const Array* mask = arrays_.find("tree_mask")) {
    arguments_.tree_mask = as_const(tensor<3>(*mask, "[batch, q_len, q_len]"));
  }
}

/// Without lengths every key of a contiguous cache counts.
void Call::take_lengths() {
  arguments_.lengths = arrays_.find_vector("lengths");
  if (arguments_.lengths.given()) return;
  check(arguments_.kv.layout == KvLayout::kContiguous,
        "lengths is None; with a paged cache it must be given, because pages do not say how many "
        "keys a sequence has");
  const std::int64_t batch = ragged() ? std::max<std::int64_t>(arguments_.q_offsets.columns - 1, 0)
                                      : arguments_.q.shape[0];
  full_lengths_.assign(static_cast<std::size_t>(std::max<std::int64_t>(batch, 1)), capacity());
  arguments_.lengths = indices(full_lengths_.data(), batch);
}

std::int64_t Call::capacity() const {
  const KvView& kv = arguments_.kv;
  if (kv.layout == KvLayout::kContiguous) return kv.page_size();
  const bool dense = kv.layout == KvLayout::kPagedDense;
  const std::int64_t pages = dense ? kv.page_table.columns : kv.page_ids.columns;
  // Broadcast pages may be of any size; what is too large, planning refuses.
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  if (kv.page_size() > 0 && pages > most / kv.page_size()) return most;
  return pages * kv.page_size();
}

nb::tuple Call::out_shape() const {
  const auto& q = arguments_.q.shape;
  const std::int64_t v_head_dim = arguments_.kv.v.shape[3];
  if (ragged()) return nb::make_tuple(q[1], q[2], v_head_dim);
  return nb::make_tuple(q[0], q[1], q[2], v_head_dim);
}

Arguments Call::with_results(NamedArrays& results) const {
  Arguments arguments = arguments_;
  const Array& out = results.get("out", Access::kWrite);
  arguments.out = queries<4>(out, ragged(), kUniform, kRagged);
  if (const Array* lse = results.find("lse", Access::kWrite)) {
    arguments.lse =
        queries<3>(*lse, ragged(), "[batch, q_len, heads]", "with q_offsets [num_queries, heads]");
  }
  return arguments;
}

}  // namespace leanattn::python
