// Page tables: entries that hold visible keys must name pages of the cache; no other
// entry is looked at.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core_helpers.h"
#include "leanattn/attention.h"

namespace leanattn {
namespace {

using testing_core::Call;

constexpr auto kF32 = ElementType::kFloat32;

/// A paged call of q_len 2: 4 pages of `page_size`, two sequences.
template <class Index>
struct Paged {
  Call call{{0, 0}, 2, 1, 1, 1, 1};
  std::vector<float> pool;
  std::vector<Index> ids, indptr;
  Problem problem;

  Paged(KvLayout layout, std::int64_t page_size, std::vector<std::int32_t> lengths,
        std::vector<Index> entries, std::vector<Index> offsets = {}, Window window = {})
      : pool(static_cast<std::size_t>(4 * page_size)),
        ids(std::move(entries)),
        indptr(std::move(offsets)) {
    call.lengths = std::move(lengths);
    KvView& kv = call.arguments.kv;
    kv.layout = layout;
    kv.k = kv.v = contiguous<4, const void*>(pool.data(), kF32, {4, page_size, 1, 1});
    const auto count = static_cast<std::int64_t>(ids.size());
    if (layout == KvLayout::kPagedDense) {
      kv.page_table = index_table(ids.data(), 2, count / 2);
    } else {
      kv.page_ids = indices(ids.data(), count);
      kv.page_indptr = indices(indptr.data(), static_cast<std::int64_t>(indptr.size()));
    }
    call.arguments.lengths = indices(call.lengths.data(), 2);
    ScoreRules rules;
    rules.window = window;
    problem = problem_of(call.arguments, rules);
  }

  std::string sentence() {
    try {
      check_arguments(problem, call.arguments);
    } catch (const Error& error) {
      return error.what();
    }
    return "fine";
  }
};

template <class Index>
class CoreCheckPages : public testing::Test {};
using IndexTypes = testing::Types<std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(CoreCheckPages, IndexTypes);

TYPED_TEST(CoreCheckPages, OnlyEntriesThatHoldKeysAreLookedAt) {
  using Call2 = Paged<TypeParam>;
  EXPECT_EQ(Call2(KvLayout::kPagedDense, 16, {17, 0}, {3, 0, -1, 99}).sentence(), "fine");
  EXPECT_EQ(Call2(KvLayout::kPagedDense, 16, {16, 1}, {3, -1, 2, 4}).sentence(), "fine");
  EXPECT_EQ(Call2(KvLayout::kPagedDense, 16, {17, 0}, {3, 4, -1, 99}).sentence(),
            "entry 1 of sequence 0 in page_table is 4; it must be at least 0 and below 4, the "
            "pages of the cache");
  EXPECT_EQ(Call2(KvLayout::kPagedDense, 16, {0, 17}, {3, 4, 3, -1}).sentence(),
            "entry 1 of sequence 1 in page_table is -1; it must be at least 0 and below 4, the "
            "pages of the cache");
  EXPECT_EQ(Call2(KvLayout::kPagedCsr, 1, {2, 3}, {0, 1, 9, 3, 2, 5}, {0, 3, 6}).sentence(),
            "entry 2 of sequence 1 in page_ids is 5; it must be at least 0 and below 4, the pages "
            "of the cache");
  EXPECT_EQ(Call2(KvLayout::kPagedCsr, 1, {2, 2}, {0, 1, 9, 3, 2, 5}, {0, 3, 6}).sentence(),
            "fine");
}

TYPED_TEST(CoreCheckPages, PagesBeforeTheWindowOfTheFirstQueryMayBeGone) {
  using Call2 = Paged<TypeParam>;
  // n = 10, q_len 2: the first query stands at 8; with left = 2 it sees 6 and on.
  const Window window{.causal = true, .left = 2};
  EXPECT_EQ(
      Call2(KvLayout::kPagedCsr, 2, {10, 0}, {-1, -1, -1, 3, 2}, {0, 5, 5}, window).sentence(),
      "fine");
  EXPECT_EQ(
      Call2(KvLayout::kPagedCsr, 2, {10, 0}, {-1, -1, -1, -1, 2}, {0, 5, 5}, window).sentence(),
      "entry 3 of sequence 0 in page_ids is -1; it must be at least 0 and below 4, the pages of "
      "the cache");
}

TYPED_TEST(CoreCheckPages, LengthsStayWithinTheTable) {
  using Call2 = Paged<TypeParam>;
  EXPECT_EQ(Call2(KvLayout::kPagedDense, 16, {32, 33}, {0, 1, 2, 3}).sentence(),
            "lengths[1] is 33; it must be from 0 to 32, the keys that sequence 1 has room for");
  EXPECT_EQ(Call2(KvLayout::kPagedCsr, 16, {17, 1}, {0, 1, 2}, {0, 1, 3}).sentence(),
            "lengths[0] is 17; it must be from 0 to 16, the keys that sequence 0 has room for");
}

TYPED_TEST(CoreCheckPages, IndptrRisesWithinTheIds) {
  using Call2 = Paged<TypeParam>;
  EXPECT_EQ(Call2(KvLayout::kPagedCsr, 16, {1, 1}, {0, 1, 2}, {0, 2, 1}).sentence(),
            "page_indptr[2] is 1; it must be from 2 to 3, not below the one before nor above the "
            "number of page_ids");
  EXPECT_EQ(Call2(KvLayout::kPagedCsr, 16, {1, 1}, {0, 1, 2}, {0, 2, 4}).sentence(),
            "page_indptr[2] is 4; it must be from 2 to 3, not below the one before nor above the "
            "number of page_ids");
  EXPECT_EQ(Call2(KvLayout::kPagedCsr, 16, {1, 1}, {0, 1, 2}, {0, 2}).sentence(),
            "page_indptr is 1 by 2; it must be 1 by 3");
}

TEST(CoreCheckPagesLayout, TablesOfAnotherLayoutAreRefused) {
  Paged<std::int32_t> paged(KvLayout::kPagedDense, 16, {1, 1}, {0, 1, 2, 3});
  paged.problem.page_size = 32;
  EXPECT_EQ(paged.sentence(), "page_size of kv is 16; it must be 32");
  paged.problem.page_size = 16;
  const std::int64_t rows[2] = {0, 1};
  paged.call.arguments.kv.cache_rows = indices(rows, 2);
  EXPECT_EQ(paged.sentence(),
            "cache_rows is given, but the layout is paged (dense table); it must be left out, "
            "because it would be ignored");
}

}  // namespace
}  // namespace leanattn
