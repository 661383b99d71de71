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

const Array& Arrays::get(const char* name, nb::handle object, Access access) {
  check<TypeMismatch>(object.is_valid() && !object.is_none(), name,
                      " is None; it must be an array");
  return arrays_.emplace_back(import_array(name, object, access, stream_));
}

const Array& Arrays::get(const char* name, Access access) {
  return get(name, keywords_.find(name), access);
}

const Array* Arrays::find(const char* name, Access access) {
  const nb::handle object = keywords_.find(name);
  return !object.is_valid() || object.is_none() ? nullptr : &get(name, object, access);
}

IndexView Arrays::find_vector(const char* name) {
  const Array* array = find(name);
  return array == nullptr ? IndexView{} : index_vector(*array);
}

bool is_hnd(std::string_view layout) {
  check(layout == "NHD" || layout == "HND", "layout is ", layout, "; allowed are NHD and HND");
  return layout == "HND";
}

MutableKvView cache_of(Arrays& arrays, const Array& k, const Array& v, bool hnd) {
  const std::string_view dimensions =
      hnd ? "[rows or pages, kv_heads, capacity or page_size, dim] for HND"
          : "[rows or pages, capacity or page_size, kv_heads, dim] for NHD";
  MutableKvView kv;
  kv.k = tensor<4>(k, dimensions);
  kv.v = tensor<4>(v, dimensions);
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

Call::Call(const Inputs& inputs, const nb::dict& keywords)
    : arrays_(keywords, inputs.stream), library_(library_of(inputs.q)) {
  options_.emplace(arrays_.keywords());
  const nb::handle layout = arrays_.keywords().find("layout");
  if (layout.is_valid()) {
    check<TypeMismatch>(PyUnicode_Check(layout.ptr()), "layout is ", nb::repr(layout).c_str(),
                        "; it must be a string");
    hnd_ = is_hnd(nb::borrow<nb::str>(layout).c_str());
  }
  take_tensors(inputs);
  arrays_.keywords().check_all_found("a call");
}

Call::Call(const Inputs& inputs, const nb::dict& keywords, std::string_view layout)
    : arrays_(keywords, inputs.stream), library_(library_of(inputs.q)), hnd_(is_hnd(layout)) {
  take_tensors(inputs);
  arrays_.keywords().check_all_found("a run of a plan");
}

void Call::take_tensors(const Inputs& inputs) {
  const Array& q = arrays_.get("q", inputs.q);  // the first: it says which stream
  arguments_.q_offsets = arrays_.find_vector("q_offsets");
  arguments_.q = as_const(queries<4>(q, ragged(), kUniform, kRagged));
  check(!stream_given() || !on_host(),
        "stream is given, but q lies in host memory, where no work is queued; it must be None, "
        "because it would be ignored");
  take_cache(inputs);
  for (const auto& [name, view] : {std::pair{"sinks", &arguments_.sinks},
                                   std::pair{"alibi_slopes", &arguments_.alibi_slopes}}) {
    if (const Array* array = arrays_.find(name)) *view = as_const(tensor<1>(*array, "[heads]"));
  }
  if (const Array* bias = arrays_.find("bias")) take_bias(*bias);
  if (const Array* mask = arrays_.find("tree_mask")) {
    arguments_.tree_mask = as_const(tensor<3>(*mask, "[batch, q_len, q_len]"));
  }
}

void Call::take_cache(const Inputs& inputs) {
  const Array& k = arrays_.get("k", inputs.k);
  const Array& v = arrays_.get("v", inputs.v);
  arguments_.kv = as_const(cache_of(arrays_, k, v, hnd_));
  take_lengths(inputs.lengths);
}

/// One sequence, or one head, stands for all.
void Call::take_bias(const Array& bias) {
  arguments_.bias = as_const(tensor<4>(bias, "[batch, heads, q_len, kv_len]"));
  const std::int64_t wanted[] = {batch(), arguments_.q.shape[2]};
  for (const int dimension : {0, 1}) {
    if (arguments_.bias.shape[dimension] != 1) continue;
    arguments_.bias.shape[dimension] = wanted[dimension];
    arguments_.bias.strides[dimension] = 0;
  }
}

/// Without lengths every key of a contiguous cache counts.
void Call::take_lengths(nb::handle lengths) {
  if (!lengths.is_none()) {
    set_lengths(lengths);
    return;
  }
  check(arguments_.kv.layout == KvLayout::kContiguous,
        "lengths is None; with a paged cache it must be given, because pages do not say how many "
        "keys a sequence has");
  lacks_lengths_ = !on_host();
  if (lacks_lengths_) return;
  full_lengths_.assign(static_cast<std::size_t>(std::max<std::int64_t>(batch(), 1)), capacity());
  arguments_.lengths = indices(full_lengths_.data(), batch());
}

void Call::set_lengths(nb::handle lengths) {
  arguments_.lengths = index_vector(arrays_.get("lengths", lengths));
  lacks_lengths_ = false;
}

std::int64_t Call::batch() const {
  return ragged() ? std::max<std::int64_t>(arguments_.q_offsets.columns - 1, 0)
                  : arguments_.q.shape[0];
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

const Array& Call::take_out(nb::handle out) {
  if (out_ == nullptr) out_ = &arrays_.get("out", out, Access::kWrite);
  return *out_;
}

const Array& Call::take_workspace(nb::handle workspace) {
  return arrays_.get("workspace", workspace, Access::kWrite);
}

Arguments Call::with_results(nb::handle out, nb::handle lse) {
  Arguments arguments = arguments_;
  arguments.out = queries<4>(take_out(out), ragged(), kUniform, kRagged);
  if (!lse.is_none()) {
    const Array& array = arrays_.get("lse", lse, Access::kWrite);
    arguments.lse =
        queries<3>(array, ragged(), "[batch, q_len, heads]", "with q_offsets [num_queries, heads]");
  }
  return arguments;
}

}  // namespace leanattn::python
