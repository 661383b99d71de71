// Clusters and shares for calls and devices of any size. Needs no GPU.
#include "cuda/shares.h"

#include <gtest/gtest.h>

namespace leanattn::cuda {
namespace {

constexpr std::int64_t kBlocks = 132;  // an H200's SMs

// Clusters that an H200 runs at once: its SMs come in groups of 16 and 18.
std::int64_t resident(std::int64_t size) {
  return size == 8 ? 15 : size == 4 ? 30 : kBlocks / size;
}

constexpr EnoughBlocks kLongRows{48, 64};
constexpr EnoughBlocks kShortRows{96, 96};

ShareCounts counts(std::int64_t heads, std::int64_t row_blocks, double megabytes,
                   const EnoughBlocks& enough = kLongRows) {
  return {heads, row_blocks, megabytes * 1e6, enough};
}

struct Dealt {
  std::int64_t cluster, shares;
  friend bool operator==(const Dealt&, const Dealt&) = default;
};

Dealt dealt(const ShareCounts& call, std::int64_t most = 8) {
  const std::int64_t cluster = cluster_size(call, most, resident);
  return {cluster, shares_of_head(call, cluster, resident(cluster))};
}

Problem problem_of(std::int64_t head_dim, std::int64_t page_size) {
  Problem problem;
  problem.head_dim = problem.v_head_dim = head_dim;
  problem.page_size = page_size;
  problem.layout = page_size > 0 ? KvLayout::kPagedDense : KvLayout::kContiguous;
  return problem;
}

TEST(Shares, FewBlocksAreEnoughWhereCopiesAreFewInstructions) {
  const auto expect = [](const EnoughBlocks& enough, std::int64_t alone, std::int64_t in_clusters) {
    EXPECT_EQ(enough.alone, alone);
    EXPECT_EQ(enough.in_clusters, in_clusters);
  };
  expect(enough_blocks(problem_of(128, 0), 8, 134e6), 48, 64);
  expect(enough_blocks(problem_of(128, 16), 8, 134e6), 48, 64);
  expect(enough_blocks(problem_of(128, 48), 8, 134e6), 48, 64);
  expect(enough_blocks(problem_of(128, 0), 8, 50e6), 48, 48);
  expect(enough_blocks(problem_of(128, 1), 8, 134e6), 96, 96);   // keys with pages of their own
  expect(enough_blocks(problem_of(128, 24), 8, 134e6), 96, 96);  // a chunk in two pages
  expect(enough_blocks(problem_of(64, 0), 8, 134e6), 96, 96);    // short keys
  expect(enough_blocks(problem_of(64, 0), 8, 67e6), 64, 64);     // of a small cache
  expect(enough_blocks(problem_of(64, 1), 8, 67e6), 96, 96);
  expect(enough_blocks(problem_of(64, 1), 8, 4e6), 64, 64);
  expect(enough_blocks(problem_of(128, 0), 32, 4e6), 96, 96);  // many rows
}

TEST(Shares, AFewTilesHaveAClusterEachOrMore) {
  EXPECT_EQ(dealt(counts(8, 1, 4)), (Dealt{8, 1}));
  EXPECT_EQ(dealt(counts(1, 8, 67)), (Dealt{8, 8}));   // equal sequences: cut at their ends
  EXPECT_EQ(dealt(counts(1, 1, 67)), (Dealt{8, 15}));  // one tile: all there are
  EXPECT_EQ(dealt(counts(1, 4, 67)), (Dealt{8, 12}));
}

TEST(Shares, MoreBlocksWhereHalfAreNotEnough) {
  EXPECT_EQ(dealt(counts(8, 1, 134, kShortRows)), (Dealt{2, 8}));
  EXPECT_EQ(dealt(counts(32, 1, 134, kShortRows)), (Dealt{2, 2}));
  EXPECT_EQ(dealt(counts(1, 1, 134, kShortRows)), (Dealt{8, 15}));
}

TEST(Shares, PairsWhereTheyAreEnoughForWholeTiles) {
  EXPECT_EQ(dealt(counts(32, 1, 17)), (Dealt{2, 1}));
  EXPECT_EQ(dealt(counts(8, 4, 134)), (Dealt{2, 4}));
  EXPECT_EQ(dealt(counts(56, 1, 117, kShortRows)), (Dealt{2, 1}));
  EXPECT_EQ(dealt(counts(8, 3, 123)).cluster, 1);  // 48 blocks would be too few
  EXPECT_EQ(dealt(counts(8, 3, 50, {48, 48})), (Dealt{2, 3}));
}

TEST(Shares, PairsOfLargeCachesForOneSequenceThatKeepsThemBusy) {
  EXPECT_EQ(dealt(counts(32, 1, 1074), 2), (Dealt{2, 2}));
  EXPECT_EQ(dealt(counts(8, 1, 2147), 2), (Dealt{2, 8}));
  EXPECT_EQ(dealt(counts(8, 8, 4300), 2).cluster, 1);
  EXPECT_EQ(dealt(counts(24, 1, 403, kShortRows), 2).cluster, 1);
}

TEST(Shares, ABlockForEachTileOfSmallCachesIfThatIsEnough) {
  EXPECT_EQ(dealt(counts(24, 4, 50, kShortRows)), (Dealt{1, 4}));
  EXPECT_EQ(dealt(counts(1, 128, 134)), (Dealt{1, 128}));
  EXPECT_EQ(dealt(counts(56, 1, 117)), (Dealt{1, 1}));          // though pairs would fit
  EXPECT_EQ(dealt(counts(24, 4, 268, kShortRows)).shares, 11);  // in rounds
}

TEST(Shares, RoundsWhereHeadsDoNotDivideTheBlocks) {
  EXPECT_EQ(dealt(counts(56, 1, 940, kShortRows), 2),
            (Dealt{1, 7}));  // 392 shares in 3 rounds of 132
  EXPECT_EQ(dealt(counts(24, 1, 403, kShortRows), 2), (Dealt{1, 11}));
  EXPECT_EQ(dealt(counts(24, 1, 403), 2), (Dealt{1, 5}));  // 120 of 132 blocks are enough
  EXPECT_EQ(dealt(counts(56, 1, 100, kShortRows), 1), (Dealt{1, 2}));  // not of small caches
}

// Whatever the call: no head is without a share, unless there are more heads than places; no
// place has more than a few; and of small caches every share has a place of its own.
TEST(Shares, AreWithinTheirBounds) {
  for (std::int64_t heads = 1; heads <= 300; ++heads) {
    for (const std::int64_t row_blocks : {1, 2, 3, 7, 64, 1000}) {
      for (const double megabytes : {0.0, 1.0, 150.0, 250.0, 5000.0}) {
        for (const std::int64_t most : {1, 2, 4, 8}) {
          const ShareCounts call = counts(heads, row_blocks, megabytes);
          const auto [cluster, shares] = dealt(call, most);
          const std::int64_t places = resident(cluster);
          ASSERT_TRUE(cluster == 1 || cluster == 2 || cluster == most);
          ASSERT_LE(heads * shares, 4 * places);
          if (megabytes < 200) {
            ASSERT_LE(heads * shares, places);
          }
          if (heads <= places) {
            ASSERT_GE(shares, 1);
          }
          if (cluster > 1) {
            ASSERT_LE(call.output_tiles(), places);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace leanattn::cuda
