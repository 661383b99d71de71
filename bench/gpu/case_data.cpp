// See case_data.h.
#include "case_data.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "leanattn/error.h"
#include "leanattn/partition.h"
#include "read_kernels.h"

namespace leanattn::bench {
namespace {

constexpr Device kGpu{Device::Kind::kDevice, 0};

DeviceBuffer on_device(const std::vector<std::int32_t>& values) {
  const auto bytes = static_cast<std::int64_t>(values.size() * sizeof(std::int32_t));
  DeviceBuffer buffer(bytes);
  if (bytes > 0) {
    check_cuda(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(std::int32_t),
                          cudaMemcpyHostToDevice));
  }
  return buffer;
}

std::int64_t table_width(const Case& shape) {
  return shape.page_size > 0 ? ceil_div(shape.longest(), shape.page_size) : 0;
}

// Every page belongs to one sequence, in random order; slots past a sequence's end hold 0.
std::vector<std::int32_t> page_table(const Case& shape) {
  if (shape.page_size == 0) return {};
  std::vector<std::int32_t> pages(static_cast<std::size_t>(shape.num_pages()));
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), std::mt19937_64(1));
  const std::int64_t width = table_width(shape);
  std::vector<std::int32_t> table(static_cast<std::size_t>(shape.batch() * width));
  auto next = pages.begin();
  for (std::int64_t b = 0; b < shape.batch(); ++b) {
    const std::int64_t count =
        ceil_div(shape.lengths[static_cast<std::size_t>(b)], shape.page_size);
    std::copy_n(next, count, table.begin() + b * width);
    next += count;
  }
  return table;
}

// Keys or values: [sequences or pages, their tokens, KV heads, head_dim].
TensorView<4> cache_view(const Case& shape, const void* data) {
  const std::int64_t outer = shape.page_size > 0 ? shape.num_pages() : shape.batch();
  const std::int64_t tokens = shape.page_size > 0 ? shape.page_size : shape.longest();
  TensorView<4> view = contiguous<4, const void*>(
      data, shape.type, {outer, tokens, shape.num_kv_heads, shape.head_dim});
  if (shape.heads_first) {
    view.strides[1] = shape.head_dim;
    view.strides[2] = tokens * shape.head_dim;
  }
  view.device = kGpu;
  return view;
}

std::vector<std::byte> on_host(const void* data, std::int64_t bytes) {
  std::vector<std::byte> copy(static_cast<std::size_t>(bytes));
  if (bytes > 0) check_cuda(cudaMemcpy(copy.data(), data, copy.size(), cudaMemcpyDeviceToHost));
  return copy;
}

}  // namespace

void RandomBuffer::set_type(ElementType type, cudaStream_t stream) {
  if (type == type_) return;
  fill(memory_.data(), type, memory_.size() / 16 * 16, 1, stream);
  type_ = type;
}

CaseData::CaseData(const Case& shape, std::int64_t copies, const RandomBuffer& caches,
                   cudaStream_t stream)
    : shape_(shape),
      caches_(caches.data()),
      q_bytes_(shape.batch() * shape.q_len * shape.num_q_heads * shape.head_dim *
               size_of(shape.type)),
      q_(copies * q_bytes_),
      out_(copies * q_bytes_),
      lengths_(on_device({shape.lengths.begin(), shape.lengths.end()})),
      table_(on_device(page_table(shape))) {
  check(copies * shape.cache_bytes() <= caches.size(), "copies is ", copies, "; ",
        caches.size() / shape.cache_bytes(), " fit in the buffer");
  fill(q_.data(), shape.type, q_.size(), 0x5eed'0000'0000, stream);
}

Arguments CaseData::arguments(std::int64_t copy) const {
  Arguments call;
  const std::array<std::int64_t, 4> q_shape = {shape_.batch(), shape_.q_len, shape_.num_q_heads,
                                               shape_.head_dim};
  call.q = contiguous<4, const void*>(q_.data() + copy * q_bytes_, shape_.type, q_shape);
  call.q.device = kGpu;
  call.out = contiguous<4, void*>(out_.data() + copy * q_bytes_, shape_.type, q_shape);
  call.out.device = kGpu;
  call.kv.k = cache_view(shape_, cache(copy));
  call.kv.v = cache_view(shape_, cache(copy) + shape_.cache_bytes() / 2);
  call.lengths = indices(lengths_.as<const std::int32_t>(), shape_.batch());
  call.lengths.device = kGpu;
  if (shape_.page_size > 0) {
    call.kv.layout = KvLayout::kPagedDense;
    call.kv.page_table =
        index_table(table_.as<const std::int32_t>(), shape_.batch(), table_width(shape_));
    call.kv.page_table.device = kGpu;
  }
  return call;
}

const std::byte* CaseData::cache(std::int64_t copy) const {
  return caches_ + copy * shape_.cache_bytes();
}

std::int64_t CaseData::out_elements() const { return q_bytes_ / size_of(shape_.type); }

void CaseData::poison(cudaStream_t stream) const {
  check_cuda(cudaMemsetAsync(out_.data(), 0xff, static_cast<std::size_t>(out_.size()), stream));
}

CaseData::OnHost::OnHost(const CaseData& data, float* out)
    : cache_(on_host(data.cache(0), data.shape_.cache_bytes())),
      q_(on_host(data.q_.data(), data.q_bytes_)),
      lengths_(on_host(data.lengths_.data(), data.lengths_.size())),
      table_(on_host(data.table_.data(), data.table_.size())),
      arguments_(data.arguments(0)) {
  const auto move = [](auto& view, const void* to) {
    view.data = to;
    view.device = {};
  };
  move(arguments_.q, q_.data());
  move(arguments_.kv.k, cache_.data());
  move(arguments_.kv.v, cache_.data() + data.shape_.cache_bytes() / 2);
  move(arguments_.lengths, lengths_.data());
  if (arguments_.kv.page_table.given()) move(arguments_.kv.page_table, table_.data());
  arguments_.out = contiguous<4, void*>(out, ElementType::kFloat32, arguments_.q.shape);
}

}  // namespace leanattn::bench
