// The reference finds keys wherever the cache keeps them: pages, named rows, far
// offsets and half-precision types change nothing but the place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core_helpers.h"
#include "leanattn/attention.h"
#include "leanattn/half.h"

namespace leanattn {
namespace {

using testing_core::Call;
using testing_core::kNaN;
using testing_core::sentence_of;

ScoreRules with_window(Window window) {
  ScoreRules rules;
  rules.window = window;
  return rules;
}

constexpr auto kF32 = ElementType::kFloat32;

/// The keys of `call` dealt to pages in reverse order, behind one unused page.
struct Pages {
  std::vector<float> k, v;
  std::vector<std::int32_t> table, ids, indptr{0};

  Pages(Call& call, std::int64_t page_size, KvLayout layout) {
    const std::int64_t per_row = (call.capacity + page_size - 1) / page_size;
    const std::int64_t num_pages = call.batch * per_row + 1;
    const auto size = [&](std::int64_t dim) {
      return static_cast<std::size_t>(num_pages * page_size * call.num_kv_heads * dim);
    };
    k.assign(size(call.head_dim), kNaN);
    v.assign(size(call.v_head_dim), kNaN);
    table.assign(static_cast<std::size_t>(call.batch * per_row), 1 << 30);
    for (std::int64_t b = 0; b < call.batch; ++b) {
      const std::int64_t n = call.lengths[static_cast<std::size_t>(b)];
      for (std::int64_t j = 0; j < n; ++j) {
        const std::int64_t entry = b * per_row + j / page_size;
        const std::int64_t page = num_pages - 1 - entry;
        table[static_cast<std::size_t>(entry)] = static_cast<std::int32_t>(page);
        if (j % page_size == 0) ids.push_back(static_cast<std::int32_t>(page));
        const std::int64_t row = page * page_size + j % page_size;
        copy(call.k, b * call.capacity + j, k, row, call.num_kv_heads * call.head_dim);
        copy(call.v, b * call.capacity + j, v, row, call.num_kv_heads * call.v_head_dim);
      }
      indptr.push_back(static_cast<std::int32_t>(ids.size()));
    }
    KvView& kv = call.arguments.kv;
    kv.layout = layout;
    kv.k = contiguous<4, const void*>(k.data(), kF32,
                                      {num_pages, page_size, call.num_kv_heads, call.head_dim});
    kv.v = contiguous<4, const void*>(v.data(), kF32,
                                      {num_pages, page_size, call.num_kv_heads, call.v_head_dim});
    if (layout == KvLayout::kPagedDense) {
      kv.page_table = index_table(table.data(), call.batch, per_row);
    } else {
      kv.page_ids = indices(ids.data(), static_cast<std::int64_t>(ids.size()));
      kv.page_indptr = indices(indptr.data(), call.batch + 1);
    }
  }

  static void copy(const std::vector<float>& from, std::int64_t from_row, std::vector<float>& to,
                   std::int64_t to_row, std::int64_t size) {
    for (std::int64_t i = 0; i < size; ++i) {
      to[static_cast<std::size_t>(to_row * size + i)] =
          from[static_cast<std::size_t>(from_row * size + i)];
    }
  }
};

TEST(CoreReferenceCache, PagesChangeNoBit) {
  for (const KvLayout layout : {KvLayout::kPagedDense, KvLayout::kPagedCsr}) {
    for (const std::int64_t page_size : {1, 2, 3, 16, 256, 544}) {
      Call call({5, 0, 33, 1}, 2, 4, 2, 3, 5);
      for (std::size_t i = 0; i < call.q.size(); ++i) call.q[i] = std::sin(float(i));
      for (std::size_t i = 0; i < call.k.size(); ++i) call.k[i] = std::cos(float(i) * 0.7f);
      for (std::size_t i = 0; i < call.v.size(); ++i) call.v[i] = std::sin(float(i) * 0.3f);
      reference(call.arguments, with_window({.causal = true, .left = 20}));
      const std::vector<float> out = call.out;
      const std::vector<float> lse = call.lse;
      call.out.assign(call.out.size(), kNaN);
      const Pages pages(call, page_size, layout);
      reference(call.arguments, with_window({.causal = true, .left = 20}));
      EXPECT_EQ(call.out, out) << name_of(layout) << page_size;
      EXPECT_EQ(call.lse, lse) << name_of(layout) << page_size;
    }
  }
}

TEST(CoreReferenceCache, PagesBeforeTheWindowMayBeGone) {
  Call call({10}, 2);  // positions 8 and 9: the first visible key is 6
  Pages pages(call, 2, KvLayout::kPagedDense);
  for (std::size_t entry = 0; entry < 3; ++entry) pages.table[entry] = -1;
  reference(call.arguments, with_window({.causal = true, .left = 2}));
  EXPECT_FLOAT_EQ(call.out_of(0), 7.0f);
  EXPECT_FLOAT_EQ(call.out_of(1), 8.0f);
  pages.table[3] = -1;
  EXPECT_EQ(
      sentence_of([&] { reference(call.arguments, with_window({.causal = true, .left = 2})); }),
      "entry 3 of sequence 0 in page_table is -1; it must be at least 0 and below 6, the "
      "pages of the cache");
}

TEST(CoreReferenceCache, CacheRowsPickTheRow) {
  Call call({2, 2});
  call.set_value(1, 0, 10.0f);
  call.set_value(1, 1, 10.0f);
  const std::vector<std::int64_t> rows = {1, 0};
  call.arguments.kv.cache_rows = indices(rows.data(), 2);
  reference(call.arguments);
  EXPECT_FLOAT_EQ(call.out_of(0), 10.0f);
  EXPECT_FLOAT_EQ(call.out_of(1), 0.5f);
}

TEST(CoreReferenceCache, AddressesAreWiderThan32Bits) {
  // Page 262144 · stride 16384 = 2^32 elements: the base is set so that this page is
  // the only memory there is.
  std::vector<float> memory(2, 1.0f);
  Call call({1}, 1, 1, 1, 2, 2);
  const std::int64_t page = 262144;
  const std::int32_t id = 262144;
  const std::int64_t stride = 16384;
  const auto base = reinterpret_cast<std::uintptr_t>(memory.data()) -
                    static_cast<std::uintptr_t>(page * stride) * sizeof(float);
  for (TensorView<4>* tensor : {&call.arguments.kv.k, &call.arguments.kv.v}) {
    tensor->data = reinterpret_cast<const void*>(base);
    tensor->shape = {page + 1, 1, 1, 2};
    tensor->strides = {stride, 2, 2, 1};
  }
  call.arguments.kv.layout = KvLayout::kPagedDense;
  call.arguments.kv.page_table = index_table(&id, 1, 1);
  reference(call.arguments);
  EXPECT_EQ(call.out_of(0), 1.0f);
}

TEST(CoreReferenceCache, HalvesAreReadAndWritten) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBFloat16}) {
    Call call({2}, 1, 1, 1, 1, 1);
    float q, out, k[2], v[2];  // memory for more than the halves
    store_float(&q, type, 0, 1.0f);
    for (std::int64_t j = 0; j < 2; ++j) {
      store_float(k, type, j, j == 0 ? std::log(3.0f) : 0.0f);
      store_float(v, type, j, j == 0 ? 1.0f : 0.0f);
    }
    call.arguments.q.type = call.arguments.kv.k.type = type;
    call.arguments.kv.v.type = call.arguments.out.type = type;
    call.arguments.q.data = &q;
    call.arguments.kv.k.data = k;
    call.arguments.kv.v.data = v;
    call.arguments.out.data = &out;
    reference(call.arguments);
    EXPECT_NEAR(load_float(&out, type, 0), 0.75, 2e-3);
    EXPECT_NEAR(call.lse_of_row(0), std::log(4.0), 3e-3);
  }
}

}  // namespace
}  // namespace leanattn
