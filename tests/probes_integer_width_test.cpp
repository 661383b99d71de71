// Offsets, strides and sizes past 2^31 and 2^32, in elements and in bytes, on memory
// that is only address space.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "leanattn/attention.h"
#include "sparse_memory.h"

namespace leanattn::testing {
namespace {

constexpr ElementType kBf16 = ElementType::kBFloat16;

// One sequence of zero queries and 16-bit keys that are 0; V is `v` wherever it lies.
struct Call {
  std::vector<float> q;
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<std::int64_t> lengths;
  Arguments arguments;

  Call(std::vector<std::int64_t> keys, std::int64_t heads, std::int64_t dim)
      : q(keys.size() * static_cast<std::size_t>(heads * dim), 0.0f),
        out(q.size(), NAN),
        lse(keys.size() * static_cast<std::size_t>(heads), NAN),
        lengths(std::move(keys)) {
    const auto batch = static_cast<std::int64_t>(lengths.size());
    arguments.q =
        contiguous<4, const void*>(q.data(), ElementType::kFloat32, {batch, 1, heads, dim});
    arguments.out = contiguous<4, void*>(out.data(), ElementType::kFloat32, {batch, 1, heads, dim});
    arguments.lse = contiguous<3, void*>(lse.data(), ElementType::kFloat32, {batch, 1, heads});
    arguments.lengths = indices(lengths.data(), batch);
  }

  void expect_everywhere(double value, double log_sum, const ScoreRules& rules = {}) {
    for (const std::int64_t workers : {1, 2, 7}) {
      PlanOptions options;
      options.partition = PartitionChoice::kStreamK;
      options.num_workers = workers;
      std::fill(out.begin(), out.end(), NAN);
      decode(arguments, rules, options);
      for (const float x : out) ASSERT_NEAR(x, value, 1e-6);
      for (const float x : lse) ASSERT_NEAR(x, log_sum, 2e-6 * (1 + std::fabs(log_sum)));
    }
    reference(arguments, rules);
    for (const float x : out) ASSERT_NEAR(x, value, 1e-6);
  }
};

// A paged cache of one head in which only page `page` holds ones.
struct OnePage {
  std::int64_t page_size;
  std::int64_t dim;
  std::int64_t page;
  std::int64_t stride;  // elements from one page to the next
};

void expect_page_found(const OnePage& pool) {
  const SparseMemory k((pool.page + 1) * pool.stride * 2);
  const SparseMemory v((pool.page + 1) * pool.stride * 2);
  v.set(kBf16, pool.page * pool.stride, pool.page_size * pool.dim, 1);
  Call call({pool.page_size}, 1, pool.dim);
  const std::int64_t id = pool.page;
  KvView& kv = call.arguments.kv;
  kv.layout = KvLayout::kPagedDense;
  kv.page_table = index_table(&id, 1, 1);
  const std::array<std::int64_t, 4> shape{pool.page + 1, pool.page_size, 1, pool.dim};
  const std::array<std::int64_t, 4> strides{pool.stride, pool.dim, pool.dim, 1};
  kv.k = {k.data(), kBf16, shape, strides, {}};
  kv.v = {v.data(), kBf16, shape, strides, {}};
  call.expect_everywhere(1, std::log(static_cast<double>(pool.page_size)));
}

TEST(IntegerWidth, PagesPast32BitOffsets) {
  expect_page_found({480, 576, 7767, 480 * 576});     // just below 2^31 elements
  expect_page_found({480, 576, 7768, 480 * 576});     // past 2^31 elements, 2^32 bytes
  expect_page_found({1, 16, 262'144, 16'384});        // 2^32 elements
  expect_page_found({16, 128, 1'048'577, 16 * 128});  // past 2^31 elements
  expect_page_found({16, 64, 2599, 1 << 21});         // past 2^32 elements, few pages
  expect_page_found({16, 64, 3, std::int64_t{1} << 31});
}

// Key j of a single sequence: only the newest is seen.
TEST(IntegerWidth, TokensPast32BitByteOffsets) {
  for (const std::int64_t n : {3'728'271, 3'728'272, 7'500'000}) {
    constexpr std::int64_t kDim = 576;
    const SparseMemory k(n * kDim * 2);
    const SparseMemory v(n * kDim * 2);
    v.set(kBf16, (n - 1) * kDim, kDim, 1);
    Call call({n}, 1, kDim);
    call.arguments.kv.k = contiguous<4, const void*>(k.data(), kBf16, {1, n, 1, kDim});
    call.arguments.kv.v = contiguous<4, const void*>(v.data(), kBf16, {1, n, 1, kDim});
    call.expect_everywhere(1, 0, {{}, 0, {true, 0, -1}});
  }
}

TEST(IntegerWidth, CacheRowsPast32BitOffsets) {
  constexpr std::int64_t kStride = std::int64_t{1} << 30;
  const SparseMemory k(5 * kStride * 2);
  const SparseMemory v(5 * kStride * 2);
  Call call({3, 3, 3, 3}, 1, 64);
  const std::vector<std::int32_t> rows{4, 3, 2, 1};
  for (const std::int64_t row : rows) v.set(kBf16, row * kStride, 3 * 64, 1);
  KvView& kv = call.arguments.kv;
  kv.cache_rows = indices(rows.data(), 4);
  kv.k = {k.data(), kBf16, {5, 8, 1, 64}, {kStride, 64, 64, 1}, {}};
  kv.v = {v.data(), kBf16, {5, 8, 1, 64}, {kStride, 64, 64, 1}, {}};
  call.expect_everywhere(1, std::log(3.0));
}

TEST(IntegerWidth, HeadStridesPast32BitOffsets) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 64;
  const SparseMemory k(4 * kStride * 2);
  const SparseMemory v(4 * kStride * 2);
  for (std::int64_t head = 0; head < 3; ++head) v.set(kBf16, head * kStride, 2 * 64, 1);
  Call call({2}, 3, 64);
  call.arguments.kv.k = {k.data(), kBf16, {1, 2, 3, 64}, {0, 64, kStride, 1}, {}};
  call.arguments.kv.v = {v.data(), kBf16, {1, 2, 3, 64}, {0, 64, kStride, 1}, {}};
  call.expect_everywhere(1, std::log(2.0));
}

// A mask that keeps key 1 of 3 at offsets past 2^31 and 2^32.
TEST(IntegerWidth, MasksPast32BitOffsets) {
  for (const std::int64_t stride : {std::int64_t{1} << 31, (std::int64_t{1} << 32) + 8}) {
    const SparseMemory mask(2 * stride + 64);
    const std::vector<float> k(2 * 3 * 8, 0.0f);
    std::vector<float> v(2 * 3 * 8, 0.0f);
    for (std::int64_t b = 0; b < 2; ++b) {
      static_cast<std::uint8_t*>(mask.data())[b * stride + 1] = 1;
      for (std::int64_t d = 0; d < 8; ++d) v[static_cast<std::size_t>((b * 3 + 1) * 8 + d)] = 1;
    }
    Call call({3, 3}, 1, 8);
    KvView& kv = call.arguments.kv;
    kv.k = contiguous<4, const void*>(k.data(), ElementType::kFloat32, {2, 3, 1, 8});
    kv.v = contiguous<4, const void*>(v.data(), ElementType::kFloat32, {2, 3, 1, 8});
    call.arguments.bias = {mask.data(), ElementType::kBool, {2, 1, 1, 3}, {stride, 0, 0, 1}, {}};
    call.expect_everywhere(1, 0);
  }
}

TEST(IntegerWidth, LongContextsOfZeros) {
  for (const std::int64_t n : {33'728, 65'537}) {
    const SparseMemory zeros(n * 64 * 2);
    Call call({n}, 1, 64);
    call.arguments.kv.k = contiguous<4, const void*>(zeros.data(), kBf16, {1, n, 1, 64});
    call.arguments.kv.v = contiguous<4, const void*>(zeros.data(), kBf16, {1, n, 1, 64});
    call.expect_everywhere(0, std::log(static_cast<double>(n)));
  }
}

TEST(IntegerWidth, ManyHeadsAndManySequences) {
  for (const bool heads : {true, false}) {
    const std::int64_t many = 65'537;
    const std::int64_t num_heads = heads ? many : 1;
    const auto batch = static_cast<std::size_t>(heads ? 1 : many);
    Call call(std::vector<std::int64_t>(batch, 2), num_heads, 4);
    const std::vector<float> k(static_cast<std::size_t>(many * 2 * 4), 0.0f);
    const std::vector<float> v(k.size(), 1.0f);
    const std::array<std::int64_t, 4> shape{static_cast<std::int64_t>(batch), 2, num_heads, 4};
    call.arguments.kv.k = contiguous<4, const void*>(k.data(), ElementType::kFloat32, shape);
    call.arguments.kv.v = contiguous<4, const void*>(v.data(), ElementType::kFloat32, shape);
    call.expect_everywhere(1, std::log(2.0));
  }
}

TEST(IntegerWidth, AppendingPast32BitOffsets) {
  constexpr std::int64_t kStride = std::int64_t{1} << 30;
  const SparseMemory k(5 * kStride * 2);
  const SparseMemory v(5 * kStride * 2);
  const std::vector<std::int32_t> rows{1, 2, 3, 4};
  const std::vector<std::int32_t> lengths(4, 1);
  std::vector<float> keys(4 * 64, 0.0f);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<float>(1 + i / 64);
  MutableKvView cache;
  cache.k = {k.data(), kBf16, {5, 8, 1, 64}, {kStride, 64, 64, 1}, {}};
  cache.v = {v.data(), kBf16, {5, 8, 1, 64}, {kStride, 64, 64, 1}, {}};
  cache.cache_rows = indices(rows.data(), 4);
  const auto fresh = contiguous<4, const void*>(keys.data(), ElementType::kFloat32, {4, 1, 1, 64});
  append_kv(fresh, fresh, {}, indices(lengths.data(), 4), cache);
  for (const SparseMemory* memory : {&k, &v}) {
    for (std::int64_t row = 0; row < 5; ++row) {
      for (std::int64_t token = 0; token < 3; ++token) {
        const float found = load_float(memory->data(), kBf16, row * kStride + token * 64 + 63);
        EXPECT_EQ(found, token == 1 ? static_cast<float>(row) : 0.0f);
      }
    }
  }
}

}  // namespace
}  // namespace leanattn::testing
