// See problem_file.h.
#include "problem_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "leanattn/error.h"

namespace leanattn::tools {
namespace {

constexpr std::string_view kKnown[] = {
    "q",          "k",         "v",           "lengths", "q_offsets",
    "page_table", "page_ids",  "page_indptr", "sinks",   "alibi_slopes",
    "bias",       "tree_mask", "cache_rows",  "out",     "lse",
};

// Sizes that need no bytes in the file, but memory here.
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 24;
constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 16;

void check_names(const Safetensors& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    check(std::find(std::begin(kKnown), std::end(kKnown), tensor.name) != std::end(kKnown),
          file.source(), ": a tensor named '", tensor.name.substr(0, 60),
          "' would be ignored; see leanattn run --help for the names that are read");
  }
}

const StoredTensor& required(const Safetensors& file, std::string_view name) {
  const StoredTensor* tensor = file.find(name);
  check(tensor != nullptr, file.source(), ": there is no tensor '", name, "'");
  return *tensor;
}

void check_rank(const StoredTensor& tensor, std::size_t rank) {
  check(tensor.shape.size() == rank, "tensor '", tensor.name, "' is ", describe(tensor), "; ", rank,
        rank == 1 ? " dimension is needed" : " dimensions are needed");
}

// Kernels read a bool as one: another bit pattern would be undefined.
void check_bools(const StoredTensor& tensor) {
  const auto* end = tensor.data + tensor.num_bytes;
  check(std::all_of(tensor.data, end, [](std::byte b) { return b <= std::byte{1}; }), "tensor '",
        tensor.name, "' is BOOL but holds bytes other than 0 and 1");
}

template <int kRank>
TensorView<kRank> view_of(const StoredTensor& tensor, bool bool_too = false) {
  check_rank(tensor, kRank);
  const ElementType type = element_type_of(tensor, bool_too);
  if (type == ElementType::kBool) check_bools(tensor);
  std::array<std::int64_t, kRank> shape{};
  std::copy(tensor.shape.begin(), tensor.shape.end(), shape.begin());
  return contiguous<kRank>(static_cast<const void*>(tensor.data), type, shape);
}

// A tensor of I32 or I64: [n], or [rows, n] where `rank` is 2.
IndexView index_view_of(const StoredTensor& tensor, std::size_t rank = 1) {
  check_rank(tensor, rank);
  check<TypeMismatch>(tensor.type == StoredType::kI32 || tensor.type == StoredType::kI64,
                      "tensor '", tensor.name, "' is ", describe(tensor), "; I32 or I64 is needed");
  const std::int64_t columns = tensor.shape.back();
  const bool narrow = tensor.type == StoredType::kI32;
  return {tensor.data,
          narrow ? IndexType::kInt32 : IndexType::kInt64,
          rank == 2 ? tensor.shape.front() : 1,
          columns,
          columns,
          {}};
}

TensorView<4> cache_view_of(const StoredTensor& tensor, CacheOrder order) {
  TensorView<4> view = view_of<4>(tensor);
  if (order == CacheOrder::kHnd) {  // [rows, heads, capacity, d] seen as [rows, capacity, heads, d]
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.strides[1], view.strides[2]);
  }
  return view;
}

template <int kRank>
void broadcast(TensorView<kRank>& view, int dimension, std::int64_t size) {
  const auto d = static_cast<std::size_t>(dimension);
  if (view.shape[d] != 1) return;
  view.shape[d] = size;
  view.strides[d] = 0;
}

std::int64_t num_rows(const TensorView<4>& q) { return q.shape[0] * q.shape[1] * q.shape[2]; }

}  // namespace

ElementType element_type_of(const StoredTensor& tensor, bool bool_too) {
  switch (tensor.type) {
    case StoredType::kF32: return ElementType::kFloat32;
    case StoredType::kF16: return ElementType::kFloat16;
    case StoredType::kBF16: return ElementType::kBFloat16;
    case StoredType::kBool:
      if (bool_too) return ElementType::kBool;
      break;
    default: break;
  }
  throw TypeMismatch(concat("tensor '", tensor.name, "' is ", describe(tensor), "; F32, F16",
                            bool_too ? ", BF16 or BOOL" : " or BF16", " is needed"));
}

ProblemFile::ProblemFile(Safetensors file, CacheOrder order) : file_(std::move(file)) {
  check_names(file_);
  set_queries();
  set_cache(order);
  set_lengths();
  set_rules();
  set_output();
}

void ProblemFile::set_queries() {
  arguments_.q = view_of<4>(required(file_, "q"));
  if (const StoredTensor* offsets = file_.find("q_offsets")) {
    arguments_.q_offsets = index_view_of(*offsets);
  }
}

void ProblemFile::set_cache(CacheOrder order) {
  KvView& kv = arguments_.kv;
  kv.k = cache_view_of(required(file_, "k"), order);
  kv.v = cache_view_of(required(file_, "v"), order);
  const bool csr = file_.find("page_ids") != nullptr || file_.find("page_indptr") != nullptr;
  const StoredTensor* table = file_.find("page_table");
  check(!csr || table == nullptr, file_.source(),
        ": page_table and page_ids are both given; one of the two is needed");
  if (table != nullptr) {
    kv.layout = KvLayout::kPagedDense;
    kv.page_table = index_view_of(*table, 2);
  } else if (csr) {
    kv.layout = KvLayout::kPagedCsr;
    kv.page_ids = index_view_of(required(file_, "page_ids"));
    kv.page_indptr = index_view_of(required(file_, "page_indptr"));
  }
  if (const StoredTensor* rows = file_.find("cache_rows")) kv.cache_rows = index_view_of(*rows);
}

void ProblemFile::set_lengths() {
  if (const StoredTensor* lengths = file_.find("lengths")) {
    arguments_.lengths = index_view_of(*lengths);
    return;
  }
  check(arguments_.kv.layout == KvLayout::kContiguous, file_.source(),
        ": a paged cache needs a tensor 'lengths'");
  const std::int64_t batch =
      arguments_.q_offsets.given() ? arguments_.q_offsets.columns - 1 : arguments_.q.shape[0];
  // A batch beyond the rows of the cache is refused later; no memory is spent on it here.
  const std::int64_t rows = file_.find("cache_rows") ? batch : arguments_.kv.k.shape[0];
  check(batch >= 0 && batch <= rows, file_.source(), ": the batch is ", batch, ", but k has ", rows,
        " rows");
  check(batch <= kMaxBatch, file_.source(), ": the batch is ", batch, "; beyond ", kMaxBatch,
        " a tensor 'lengths' is needed");
  full_lengths_.assign(static_cast<std::size_t>(batch) + 1, arguments_.kv.page_size());
  arguments_.lengths = indices(full_lengths_.data(), batch);
}

void ProblemFile::set_rules() {
  if (const StoredTensor* sinks = file_.find("sinks")) arguments_.sinks = view_of<1>(*sinks);
  if (const StoredTensor* slopes = file_.find("alibi_slopes")) {
    arguments_.alibi_slopes = view_of<1>(*slopes);
  }
  if (file_.find("bias") == nullptr && file_.find("tree_mask") == nullptr) return;
  const Problem problem = problem_of(arguments_);
  if (const StoredTensor* bias = file_.find("bias")) {
    arguments_.bias = view_of<4>(*bias, true);
    broadcast(arguments_.bias, 0, problem.batch);
    broadcast(arguments_.bias, 1, problem.num_q_heads);
    broadcast(arguments_.bias, 2, problem.max_q_len);
    // Written for the capacity, read up to the longest sequence.
    std::int64_t& keys = arguments_.bias.shape[3];
    keys = std::min(keys, problem.max_kv_len);
  }
  if (const StoredTensor* mask = file_.find("tree_mask")) {
    arguments_.tree_mask = view_of<3>(*mask, true);
    broadcast(arguments_.tree_mask, 0, problem.batch);
  }
}

void ProblemFile::set_output() {
  const TensorView<4>& q = arguments_.q;
  const std::int64_t v_head_dim = arguments_.kv.v.shape[3];
  for (const std::int64_t head_dim : {q.shape[3], v_head_dim}) {
    check(head_dim >= 1 && head_dim <= kMaxHeadDim, file_.source(), ": a head has ", head_dim,
          " elements; from 1 to ", kMaxHeadDim, " are read");
  }
  const StoredTensor* expected = file_.find("out");
  const bool wide = expected != nullptr && expected->type == StoredType::kF32;
  const ElementType type = wide ? ElementType::kFloat32 : q.type;
  std::int64_t bytes = num_rows(q);
  check(!__builtin_mul_overflow(bytes, v_head_dim * size_of(type), &bytes), file_.source(),
        ": the output has more bytes than 64 bits count");
  // One byte more: a view of nothing must still have an address.
  out_.resize(static_cast<std::size_t>(bytes) + 1);
  lse_.resize(static_cast<std::size_t>(num_rows(q)) * sizeof(float) + 1);
  arguments_.out = contiguous<4>(static_cast<void*>(out_.data()), type,
                                 {q.shape[0], q.shape[1], q.shape[2], v_head_dim});
  arguments_.lse = contiguous<3>(static_cast<void*>(lse_.data()), ElementType::kFloat32,
                                 {q.shape[0], q.shape[1], q.shape[2]});
}

std::vector<StoredTensor> ProblemFile::answer() const {
  const auto& shape = arguments_.out.shape;
  const StoredType type = arguments_.out.type == ElementType::kFloat32   ? StoredType::kF32
                          : arguments_.out.type == ElementType::kFloat16 ? StoredType::kF16
                                                                         : StoredType::kBF16;
  return {{"out",
           type,
           {shape.begin(), shape.end()},
           out_.data(),
           static_cast<std::int64_t>(out_.size()) - 1},
          {"lse",
           StoredType::kF32,
           {shape[0], shape[1], shape[2]},
           lse_.data(),
           static_cast<std::int64_t>(lse_.size()) - 1}};
}

}  // namespace leanattn::tools
