// See bench_data.h.
#include "bench_data.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "leanattn/half.h"

namespace leanattn::tools {
namespace {

// K and V of a cache begin this many bytes after the one before, so that they do
// not fall into the same sets of a cache.
constexpr std::int64_t kGap = 13 * 64;

// [pages or rows, keys in it] of a cache.
struct CacheShape {
  std::int64_t rows = 0;
  std::int64_t keys = 0;
};

CacheShape cache_shape(const Workload& workload) {
  if (workload.page_size == 0) {
    return {static_cast<std::int64_t>(workload.lengths.size()),
            *std::max_element(workload.lengths.begin(), workload.lengths.end())};
  }
  std::int64_t pages = 0;
  for (const std::int64_t length : workload.lengths) pages += ceil_div(length, workload.page_size);
  return {pages, workload.page_size};
}

std::int64_t half_bytes(const Workload& workload, ElementType type) {
  const CacheShape shape = cache_shape(workload);
  const std::int64_t bytes =
      shape.rows * shape.keys * workload.num_kv_heads * workload.head_dim * size_of(type);
  return ceil_div(bytes, 64) * 64 + kGap;
}

std::vector<std::byte> random_values(ElementType type, std::int64_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<std::byte> values(static_cast<std::size_t>(count * size_of(type)));
  for (std::int64_t i = 0; i < count; ++i) store_float(values.data(), type, i, uniform(generator));
  return values;
}

TensorView<4> cache_view(const Workload& workload, ElementType type, const void* data) {
  const CacheShape shape = cache_shape(workload);
  const std::int64_t heads = workload.num_kv_heads;
  const std::int64_t dim = workload.head_dim;
  if (workload.order == CacheOrder::kNhd) {
    return contiguous<4>(data, type, {shape.rows, shape.keys, heads, dim});
  }
  TensorView<4> view = contiguous<4>(data, type, {shape.rows, heads, shape.keys, dim});
  std::swap(view.shape[1], view.shape[2]);
  std::swap(view.strides[1], view.strides[2]);
  return view;
}

// A dense page table whose pages lie in random order.
std::vector<std::int32_t> shuffled_pages(const Workload& workload, std::int64_t width) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(cache_shape(workload).rows));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  std::vector<std::int32_t> table(workload.lengths.size() * static_cast<std::size_t>(width), -1);
  std::size_t used = 0;
  for (std::size_t b = 0; b < workload.lengths.size(); ++b) {
    const std::int64_t pages = ceil_div(workload.lengths[b], workload.page_size);
    for (std::int64_t i = 0; i < pages; ++i) {
      table[b * static_cast<std::size_t>(width) + static_cast<std::size_t>(i)] = ids[used++];
    }
  }
  return table;
}

}  // namespace

std::int64_t num_copies(const Workload& workload, ElementType type,
                        std::int64_t last_level_cache_bytes) {
  if (workload.warm) return 1;
  constexpr std::int64_t kLeastCache = std::int64_t{256} << 20;  // where it is unknown
  const std::int64_t cold = 3 * std::max(last_level_cache_bytes, kLeastCache);
  return std::max<std::int64_t>(2, ceil_div(cold, workload.cache_bytes(type)));
}

std::int64_t buffer_bytes(const Workload& workload, ElementType type, std::int64_t copies) {
  return copies * 2 * half_bytes(workload, type);
}

Values::Values(std::int64_t bytes, int num_threads)
    : buffer_(static_cast<std::size_t>(bytes)), num_threads_(num_threads) {}

void Values::set_type(ElementType type) {
  if (type_ == type) return;
  // About 1 MiB, of a length that puts different values into neighbouring rows.
  constexpr std::int64_t kPatternWords = 262147;
  buffer_.fill(random_values(type, kPatternWords * 4 / size_of(type), 1), num_threads_);
  type_ = type;
}

Calls::Calls(const Workload& workload, ElementType type, std::int64_t copies, const Values& values)
    : lengths_(workload.lengths) {
  rules_.window.causal = workload.causal;
  const auto batch = static_cast<std::int64_t>(lengths_.size());
  const std::array<std::int64_t, 4> shape{batch, workload.q_len, workload.num_q_heads,
                                          workload.head_dim};
  const std::int64_t rows = shape[0] * shape[1] * shape[2];
  q_ = random_values(type, rows * shape[3], 2);
  out_.resize(q_.size());
  lse_.resize(static_cast<std::size_t>(rows));

  Arguments call;
  call.q = contiguous<4>(static_cast<const void*>(q_.data()), type, shape);
  call.out = contiguous<4>(static_cast<void*>(out_.data()), type, shape);
  call.lse = contiguous<3>(static_cast<void*>(lse_.data()), ElementType::kFloat32,
                           {shape[0], shape[1], shape[2]});
  call.lengths = indices(lengths_.data(), batch);
  if (workload.page_size > 0) {
    const std::int64_t width =
        ceil_div(*std::max_element(lengths_.begin(), lengths_.end()), workload.page_size);
    page_table_ = shuffled_pages(workload, width);
    call.kv.layout = KvLayout::kPagedDense;
    call.kv.page_table = index_table(page_table_.data(), batch, width);
  }
  const std::int64_t half = half_bytes(workload, type);
  const auto read = static_cast<std::size_t>(workload.cache_bytes(type) / 2);
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    const std::byte* k = values.data() + 2 * copy * half;
    const std::byte* v = k + half;
    call.kv.k = cache_view(workload, type, k);
    call.kv.v = cache_view(workload, type, v);
    calls_.push_back(call);
    caches_.push_back({{k, read}, {v, read}});
  }
}

}  // namespace leanattn::tools
