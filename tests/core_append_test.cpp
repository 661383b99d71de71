// Appending writes the rows it names and nothing else, or throws and writes nothing.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core_helpers.h"
#include "leanattn/attention.h"
#include "leanattn/half.h"

namespace leanattn {
namespace {

using testing_core::sentence_of;

constexpr auto kF32 = ElementType::kFloat32;
constexpr float kUntouched = -7.0f;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// New keys 0, 1, 2, … and values 1000, 1001, … in the order of memory.
struct NewKeys {
  std::vector<float> k, v;
  TensorView<4> k_view, v_view;

  NewKeys(std::int64_t outer, std::int64_t inner, std::int64_t heads = 1, std::int64_t dim = 2,
          std::int64_t v_dim = 3)
      : k(index(outer * inner * heads * dim)), v(index(outer * inner * heads * v_dim)) {
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<float>(i);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(1000 + i);
    k_view = contiguous<4, const void*>(k.data(), kF32, {outer, inner, heads, dim});
    v_view = contiguous<4, const void*>(v.data(), kF32, {outer, inner, heads, v_dim});
  }
};

/// A cache of `rows` (or pages) of `size` keys, untouched.
struct Cache {
  std::vector<float> k, v;
  MutableKvView view;

  Cache(std::int64_t rows, std::int64_t size, std::int64_t heads = 1, std::int64_t dim = 2,
        std::int64_t v_dim = 3)
      : k(index(rows * size * heads * dim), kUntouched),
        v(index(rows * size * heads * v_dim), kUntouched) {
    view.k = contiguous<4, void*>(k.data(), kF32, {rows, size, heads, dim});
    view.v = contiguous<4, void*>(v.data(), kF32, {rows, size, heads, v_dim});
  }

  [[nodiscard]] std::int64_t num_written() const {
    std::int64_t count = 0;
    for (const float x : k) count += x != kUntouched;
    for (const float x : v) count += x != kUntouched;
    return count;
  }
};

TEST(CoreAppend, WritesAtTheEndOfEachRow) {
  const NewKeys keys(2, 2);
  Cache cache(2, 5);
  const std::vector<std::int32_t> lengths = {0, 3};
  append_kv(keys.k_view, keys.v_view, {}, indices(lengths.data(), 2), cache.view);
  for (std::int64_t d = 0; d < 4; ++d) {
    EXPECT_EQ(cache.k[index(d)], keys.k[index(d)]);
    EXPECT_EQ(cache.k[index((5 + 3) * 2 + d)], keys.k[index(4 + d)]);
  }
  for (std::int64_t d = 0; d < 6; ++d) {
    EXPECT_EQ(cache.v[index(d)], keys.v[index(d)]);
    EXPECT_EQ(cache.v[index((5 + 3) * 3 + d)], keys.v[index(6 + d)]);
  }
  EXPECT_EQ(cache.num_written(), 4 * (2 + 3));
}

TEST(CoreAppend, RaggedSequencesTakeTheirOwn) {
  const NewKeys keys(1, 3);
  Cache cache(3, 4);
  const std::vector<std::int64_t> lengths = {1, 4, 2};
  const std::vector<std::int32_t> offsets = {0, 1, 1, 3};
  append_kv(keys.k_view, keys.v_view, indices(offsets.data(), 4), indices(lengths.data(), 3),
            cache.view);
  EXPECT_EQ(cache.k[index(1 * 2)], keys.k[0]);
  EXPECT_EQ(cache.k[index((2 * 4 + 2) * 2)], keys.k[2]);
  EXPECT_EQ(cache.v[index((2 * 4 + 3) * 3 + 2)], keys.v[8]);
  EXPECT_EQ(cache.num_written(), 3 * (2 + 3));
}

TEST(CoreAppend, PagesAreFoundThroughTheTable) {
  for (const KvLayout layout : {KvLayout::kPagedDense, KvLayout::kPagedCsr}) {
    const NewKeys keys(2, 3, 2);
    Cache cache(6, 2, 2);
    const std::vector<std::int32_t> lengths = {1, 0};
    // Sequence 0 goes to slot 1 of page 4 and to page 0; 1 to pages 5 and 2. Entries that
    // are not written may be anything.
    const std::vector<std::int32_t> table = {4, 0, -1, 5, 2, 99};
    const std::vector<std::int32_t> ids = {4, 0, 5, 2};
    const std::vector<std::int64_t> indptr = {0, 2, 4};
    cache.view.layout = layout;
    if (layout == KvLayout::kPagedDense) {
      cache.view.page_table = index_table(table.data(), 2, 3);
    } else {
      cache.view.page_ids = indices(ids.data(), 4);
      cache.view.page_indptr = indices(indptr.data(), 3);
    }
    append_kv(keys.k_view, keys.v_view, {}, indices(lengths.data(), 2), cache.view);
    const std::int64_t slots[6] = {4 * 2 + 1, 0, 1, 5 * 2, 5 * 2 + 1, 2 * 2};
    for (std::int64_t row = 0; row < 6; ++row) {
      for (std::int64_t d = 0; d < 4; ++d) {
        EXPECT_EQ(cache.k[index(slots[row] * 4 + d)], keys.k[index(row * 4 + d)]) << row;
      }
      for (std::int64_t d = 0; d < 6; ++d) {
        EXPECT_EQ(cache.v[index(slots[row] * 6 + d)], keys.v[index(row * 6 + d)]) << row;
      }
    }
    EXPECT_EQ(cache.num_written(), 6 * (4 + 6));
  }
}

TEST(CoreAppend, HeadsFirstAndInterleavedAreStrides) {
  // [page, k or v, heads, slots, dim]: interleaved and heads first at once.
  const NewKeys keys(1, 2, 3, 2, 2);
  std::vector<float> memory(2 * 2 * 3 * 4 * 2, kUntouched);
  MutableKvView cache;
  cache.k = {memory.data(), kF32, {2, 4, 3, 2}, {48, 2, 8, 1}, {}};
  cache.v = cache.k;
  cache.v.data = memory.data() + 24;
  const std::int32_t length = 1;
  const std::int32_t row = 1;
  cache.cache_rows = indices(&row, 1);
  append_kv(keys.k_view, keys.v_view, {}, indices(&length, 1), cache);
  std::int64_t written = 0;
  for (const float x : memory) written += x != kUntouched;
  EXPECT_EQ(written, 24);
  for (std::int64_t i = 0; i < 2; ++i) {
    for (std::int64_t head = 0; head < 3; ++head) {
      EXPECT_EQ(memory[index(48 + head * 8 + (1 + i) * 2)], keys.k[index((i * 3 + head) * 2)]);
      EXPECT_EQ(memory[index(72 + head * 8 + (1 + i) * 2)], keys.v[index((i * 3 + head) * 2)]);
    }
  }
}

TEST(CoreAppend, TypesAreConvertedToTheCaches) {
  const ElementType types[] = {kF32, ElementType::kFloat16, ElementType::kBFloat16};
  const float value = 1.0f + 0x1p-9f + 0x1p-12f;  // no half holds it
  for (const ElementType from : types) {
    for (const ElementType to : types) {
      std::vector<float> source(4), target(4);
      for (std::int64_t d = 0; d < 4; ++d) store_float(source.data(), from, d, value + float(d));
      const TensorView<4> k = contiguous<4, const void*>(source.data(), from, {1, 1, 1, 4});
      MutableKvView cache;
      cache.k = cache.v = contiguous<4, void*>(target.data(), to, {1, 1, 1, 4});
      std::vector<float> other(4);
      cache.v.data = other.data();
      const std::int32_t length = 0;
      append_kv(k, k, {}, indices(&length, 1), cache);
      std::vector<float> expected(1);
      for (std::int64_t d = 0; d < 4; ++d) {
        store_float(expected.data(), to, 0, load_float(source.data(), from, d));
        EXPECT_EQ(load_float(target.data(), to, d), load_float(expected.data(), to, 0));
        EXPECT_EQ(load_float(other.data(), to, d), load_float(expected.data(), to, 0));
      }
    }
  }
}

TEST(CoreAppend, EqualTypesKeepTheBitsOfANaN) {
  const std::uint16_t source[2] = {0x7c01, 0xfe55};  // a signalling and a quiet NaN
  std::uint16_t k[2] = {}, v[2] = {};
  const auto f16 = ElementType::kFloat16;
  const TensorView<4> view = contiguous<4, const void*>(source, f16, {1, 1, 1, 2});
  MutableKvView cache;
  cache.k = contiguous<4, void*>(k, f16, {1, 1, 1, 2});
  cache.v = contiguous<4, void*>(v, f16, {1, 1, 1, 2});
  const std::int64_t length = 0;
  append_kv(view, view, {}, indices(&length, 1), cache);
  EXPECT_EQ(k[0], source[0]);
  EXPECT_EQ(v[1], source[1]);
}

TEST(CoreAppend, StridesAreWiderThan32Bits) {
  // Rows 2^30 elements apart, rows 1 to 4 of 5 named: only they change. The address
  // space is reserved, and a page of it used where something is written.
  const std::int64_t stride = std::int64_t{1} << 30;
  const auto bytes = static_cast<std::size_t>(5 * stride) * sizeof(float);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no 20 GiB of address space";
  const NewKeys keys(4, 1, 1, 2, 2);
  auto* cache = static_cast<float*>(memory);
  MutableKvView view;
  view.k = {cache, kF32, {5, 2, 1, 2}, {stride, 2, 2, 1}, {}};
  view.v = {cache + 4, kF32, {5, 2, 1, 2}, {stride, 2, 2, 1}, {}};
  const std::vector<std::int32_t> rows = {1, 2, 3, 4};
  const std::vector<std::int32_t> lengths = {1, 1, 1, 1};
  view.cache_rows = indices(rows.data(), 4);
  append_kv(keys.k_view, keys.v_view, {}, indices(lengths.data(), 4), view);
  for (std::int64_t d = 0; d < 8; ++d) EXPECT_EQ(cache[d], 0.0f);
  for (std::int64_t row = 1; row < 5; ++row) {
    EXPECT_EQ(cache[row * stride], 0.0f);
    EXPECT_EQ(cache[row * stride + 3], keys.k[index((row - 1) * 2 + 1)]);
    EXPECT_EQ(cache[row * stride + 6], keys.v[index((row - 1) * 2)]);
  }
  munmap(memory, bytes);
}

TEST(CoreAppendErrors, ASequenceThatWouldOutgrowItsRowIsNamed) {
  const NewKeys keys(2, 1);
  Cache cache(2, 3);
  const std::vector<std::int32_t> lengths = {0, 3};
  EXPECT_EQ(sentence_of([&] {
              append_kv(keys.k_view, keys.v_view, {}, indices(lengths.data(), 2), cache.view);
            }),
            "sequence 1 has 3 keys and is given 1 more; together they must be at most 3, the keys "
            "it has room for");
  EXPECT_EQ(cache.num_written(), 0);
}

TEST(CoreAppendErrors, ASequenceThatWouldOutgrowItsPagesIsNamed) {
  const NewKeys keys(2, 2);
  Cache cache(4, 2);
  const std::vector<std::int32_t> lengths = {2, 1};
  const std::vector<std::int32_t> ids = {0, 1, 2};
  const std::vector<std::int32_t> indptr = {0, 2, 3};
  cache.view.layout = KvLayout::kPagedCsr;
  cache.view.page_ids = indices(ids.data(), 3);
  cache.view.page_indptr = indices(indptr.data(), 3);
  EXPECT_EQ(sentence_of([&] {
              append_kv(keys.k_view, keys.v_view, {}, indices(lengths.data(), 2), cache.view);
            }),
            "sequence 1 has 1 keys and is given 2 more; together they must be at most 2, the keys "
            "it has room for");
  EXPECT_EQ(cache.num_written(), 0);
}

TEST(CoreAppendErrors, APageOutsideTheCacheIsNamed) {
  for (const std::int32_t page : {-1, 4}) {
    const NewKeys keys(2, 2);
    Cache cache(4, 2);
    const std::vector<std::int32_t> lengths = {0, 0};
    const std::vector<std::int32_t> table = {0, page};
    cache.view.layout = KvLayout::kPagedDense;
    cache.view.page_table = index_table(table.data(), 2, 1);
    EXPECT_EQ(sentence_of([&] {
                append_kv(keys.k_view, keys.v_view, {}, indices(lengths.data(), 2), cache.view);
              }),
              concat("entry 0 of sequence 1 in page_table is ", page,
                     "; it must be at least 0 and below 4, the pages of the cache"));
    EXPECT_EQ(cache.num_written(), 0);
  }
}

TEST(CoreAppendErrors, NameTheArgument) {
  const NewKeys keys(2, 2);
  Cache cache(2, 5);
  const std::vector<std::int32_t> lengths = {0, -1};
  const auto append = [&](const IndexView& offsets, const IndexView& n) {
    append_kv(keys.k_view, keys.v_view, offsets, n, cache.view);
  };
  EXPECT_EQ(sentence_of([&] { append({}, indices(lengths.data(), 2)); }),
            "lengths[1] is -1; it must be from 0 to 5, the keys that sequence 1 has room for");
  EXPECT_EQ(sentence_of([&] { append({}, indices(lengths.data(), 1)); }),
            "lengths is 1 by 1; it must be 1 by 2");
  const std::vector<std::int32_t> offsets = {0, 2, 4};
  EXPECT_EQ(sentence_of([&] { append(indices(offsets.data(), 3), indices(lengths.data(), 2)); }),
            "k has shape [2, 2, 1, 2]; it must be [1, 2, 1, 2]");
  const std::int32_t row = 2;
  const NewKeys one(1, 1);
  cache.view.cache_rows = indices(&row, 1);
  EXPECT_EQ(sentence_of([&] {
              append_kv(one.k_view, one.v_view, {}, indices(lengths.data(), 1), cache.view);
            }),
            "cache_rows[0] is 2; it must be at least 0 and below 2, the rows of the cache");
  EXPECT_EQ(cache.num_written(), 0);
}

TEST(CoreAppendErrors, NothingToAppendIsFine) {
  const NewKeys none(2, 0);
  Cache cache(2, 5);
  const std::vector<std::int32_t> lengths = {5, 0};
  append_kv(none.k_view, none.v_view, {}, indices(lengths.data(), 2), cache.view);
  const NewKeys nobody(0, 1);
  append_kv(nobody.k_view, nobody.v_view, {}, {}, cache.view);
  EXPECT_EQ(cache.num_written(), 0);
}

}  // namespace
}  // namespace leanattn
