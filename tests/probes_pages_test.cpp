// Page tables and strides: never read past what a length needs, never trust an id,
// independent of where pages lie and of their size.
#include "probe_support.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

class Pages : public Probe {
 protected:
  // The page table's entry of a sequence, in place.
  static void set_page(const Case& problem, std::int64_t b, std::int64_t page, std::int64_t id) {
    const KvView& kv = problem.arguments.kv;
    const bool dense = kv.layout == KvLayout::kPagedDense;
    const IndexView& ids = dense ? kv.page_table : kv.page_ids;
    const std::int64_t at = dense ? b * ids.row_stride + page : kv.page_indptr[b] + page;
    static_cast<std::int32_t*>(const_cast<void*>(ids.data))[at] = static_cast<std::int32_t>(id);
  }

  static Result run_once(const Case& problem, const PlanOptions& options = {}) {
    problem.reset_output();
    decode(problem.arguments, problem.rules(), options);
    return read_output(problem);
  }
};

std::vector<CacheKind> paged_kinds() {
  std::vector<CacheKind> kinds =
      cache_kinds({ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16});
  std::erase_if(kinds, [](const auto& kind) { return kind.layout == KvLayout::kContiguous; });
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Caches, Pages, ::testing::ValuesIn(paged_kinds()), cache_name);

class Strides : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, Strides, every_cache(), cache_name);

TEST_P(Pages, ATableThatIsTooNarrowIsRefused) {
  CaseSpec spec = probe({33});
  spec.page_size = 16;
  spec.spare_columns = 0;
  spec.layout = KvLayout::kPagedDense;
  Case problem = build_case(spec);
  problem.arguments.kv.page_table.columns = 2;
  try {
    decode(problem.arguments);
    FAIL() << "33 keys do not fit 2 pages of 16";
  } catch (const InvalidArgument& error) {
    const std::string sentence = error.what();
    for (const char* part : {"lengths[0]", "33", "32"}) {
      EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    }
  }
  for (const float value : read_output(problem).out) ASSERT_TRUE(std::isnan(value));
}

TEST_P(Pages, AnIdOutsideTheCacheIsRefused) {
  CaseSpec spec = probe({40, 300});
  const Case problem = build_case(spec);
  const std::int64_t pages = problem.arguments.kv.k.shape[0];
  const std::int64_t last = (300 - 1) / spec.page_size;
  const std::int64_t good =
      problem.arguments.kv.layout == KvLayout::kPagedDense
          ? problem.arguments.kv.page_table.at(1, last)
          : problem.arguments.kv.page_ids[problem.arguments.kv.page_indptr[1] + last];
  for (const std::int64_t id : {pages, std::int64_t{-1}, pages + 1000}) {
    set_page(problem, 1, last, id);
    try {
      decode(problem.arguments);
      FAIL() << "page " << id << " of " << pages << " was accepted";
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(concat(id)), std::string::npos) << error.what();
    }
  }
  for (const float value : read_output(problem).out) ASSERT_TRUE(std::isnan(value));
  set_page(problem, 1, last, good);
  expect_right(problem);
}

// The table ends at a page without access.
TEST_P(Pages, EntriesPastTheLengthAreNotRead) {
  for (const std::int64_t n : {17, 1, 65, 130}) {
    CaseSpec spec = probe({n});
    spec.page_size = 16;
    spec.spare = spec.spare_columns = 0;
    spec.q_amplitude = 1;
    expect_right(build_case(spec));
  }
}

TEST_P(Pages, StaleIdsPastTheLengthChangeNothing) {
  CaseSpec spec = probe({17, 3});
  spec.q_amplitude = 1;
  spec.spare_columns = 4;
  const Case problem = build_case(spec);
  const Result before = run_once(problem);
  for (std::int64_t column = (3 - 1) / spec.page_size + 1; column < 4; ++column) {
    set_page(problem, 1, column, column % problem.arguments.kv.k.shape[0]);
  }
  const Result after = run_once(problem);
  EXPECT_EQ(before.out, after.out);
  EXPECT_EQ(before.lse, after.lse);
}

TEST_P(Pages, LargePagesInAnyOrder) {
  for (const std::int64_t page : {64, 128, 256, 512, 544}) {
    CaseSpec spec = probe({1100, 70});
    spec.num_kv_heads = 1;
    spec.page_size = page;
    spec.q_amplitude = 1;
    expect_right(build_case(spec));
  }
}

TEST_P(Pages, ATableAsWideAsTheLongestSequence) {
  CaseSpec spec = probe(std::vector<std::int64_t>(8, 1000));
  spec.num_kv_heads = 1;
  spec.group_size = 1;
  spec.page_size = 16;
  spec.spare_columns = 0;
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  expect_right(problem, expect(problem), {PlanOptions{}});
}

TEST_P(Pages, RequestsShorterThanAPage) {
  CaseSpec spec = probe({1, 1});
  spec.page_size = 2;
  const Case problem = with_values(spec, [](auto, auto) { return 3; });
  expect_answer(problem, [](auto...) { return RowAnswer{3, 0}; });
}

// The same tokens in pages of another size and in other places.
TEST_P(Pages, PageSizeAndPlaceDoNotMatter) {
  CaseSpec spec = probe({150, 37, 1});
  spec.q_amplitude = 1;
  spec.rules.window = {true, 70, -1};
  const auto bits_with = [&](std::int64_t page_size, std::uint64_t place) {
    CaseSpec other = spec;
    other.page_size = page_size;
    other.seed = place;
    const Case problem = build_case(other);
    RandomBits bits(99);  // the values do not depend on the place
    for (std::int64_t b = 0; b < spec.batch(); ++b) {
      for (std::int64_t head = 0; head < spec.num_kv_heads; ++head) {
        for (std::int64_t j = 0; j < spec.lengths[static_cast<std::size_t>(b)]; ++j) {
          problem.set_k(b, j, head, bits.normal());
          problem.set_v(b, j, head, bits.normal());
        }
      }
      for (std::int64_t h = 0; h < spec.num_q_heads(); ++h) problem.set_q(b, 0, h, bits.normal());
    }
    return run_once(problem);
  };
  const Result one = bits_with(1, 5);
  for (const std::int64_t page : {2, 16, 64, 256}) {
    const Result other = bits_with(page, 6);
    EXPECT_EQ(one.out, other.out);
    EXPECT_EQ(one.lse, other.lse);
  }
}

TEST_P(Strides, QueriesCutFromPackedRows) {
  CaseSpec spec = probe({90, 4}, 2);
  spec.q_amplitude = 1;
  spec.q_order = RowOrder::kPacked;
  expect_right(build_case(spec));
}

TEST_P(Strides, KeysAndValuesInOneBuffer) {
  for (const std::int64_t page : {16, 64}) {
    CaseSpec spec = probe({90, 130});
    spec.q_amplitude = 1;
    spec.page_size = page;
    spec.kv_order = KvOrder::kInterleaved;
    expect_right(build_case(spec));
    spec.kv_order = KvOrder::kPadded;
    expect_right(build_case(spec));
  }
}

// New keys fit up to the capacity; one more is refused and nothing is written.
TEST_P(Strides, AppendingStopsAtTheCapacity) {
  CaseSpec spec = probe({15, 4});
  spec.page_size = 16;
  spec.spare = spec.spare_columns = 0;
  const Case problem = build_case(spec);
  const KvView& kv = problem.arguments.kv;
  MutableKvView cache;
  cache.k = {const_cast<void*>(kv.k.data), kv.k.type, kv.k.shape, kv.k.strides, {}};
  cache.v = {const_cast<void*>(kv.v.data), kv.v.type, kv.v.shape, kv.v.strides, {}};
  cache.layout = kv.layout;
  cache.page_table = kv.page_table;
  cache.page_ids = kv.page_ids;
  cache.page_indptr = kv.page_indptr;
  cache.cache_rows = kv.cache_rows;
  const std::int64_t room = spec.paged() ? 1 : 0;  // of sequence 0
  const std::vector<float> fresh(static_cast<std::size_t>(2 * 2 * 2 * 64), 1.0f);
  const auto before = problem.input_hash();
  const auto too_many =
      contiguous<4, const void*>(fresh.data(), ElementType::kFloat32, {2, room + 1, 2, 64});
  EXPECT_THROW(append_kv(too_many, too_many, {}, problem.arguments.lengths, cache),
               InvalidArgument);
  EXPECT_EQ(problem.input_hash(), before);
  if (room == 0) return;
  const auto fits =
      contiguous<4, const void*>(fresh.data(), ElementType::kFloat32, {2, room, 2, 64});
  append_kv(fits, fits, {}, problem.arguments.lengths, cache);
  EXPECT_EQ(load_float(problem.k_row(0, 15, 1), spec.k_type, 63), 1.0f);
  EXPECT_EQ(load_float(problem.v_row(1, 4, 0), spec.v_type, 0), 1.0f);
}

}  // namespace
}  // namespace leanattn::testing
