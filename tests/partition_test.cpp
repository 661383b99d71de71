// Properties of the partitions on random ragged problems: every LeanTile dealt
// once and in order, equal shares, few partials, closed forms that agree with
// counting, and the cases in which one partition is another.
#include "leanattn/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn {
namespace {

using testing::RandomBits;
using testing::scaled;

// A map with memory of its own. Moving keeps its pointers.
struct RaggedProblem {
  std::vector<std::int64_t> first_block;
  std::vector<std::int64_t> lean_tiles_before;
  TileMap map;
};

RaggedProblem make_problem(const std::vector<std::vector<std::int64_t>>& blocks,
                           std::int64_t num_kv_heads, Order order = Order::kHeadByHead) {
  RaggedProblem problem;
  problem.first_block = {0};
  problem.lean_tiles_before = {0};
  for (const auto& sequence : blocks) {
    for (const std::int64_t size : sequence) {
      problem.lean_tiles_before.push_back(problem.lean_tiles_before.back() + size);
    }
    problem.first_block.push_back(problem.first_block.back() +
                                  static_cast<std::int64_t>(sequence.size()));
  }
  problem.map = {static_cast<std::int64_t>(blocks.size()), num_kv_heads, problem.first_block.data(),
                 problem.lean_tiles_before.data(), order};
  return problem;
}

// Up to 9 sequences of 0 to 4 row blocks; some have no LeanTile.
RaggedProblem draw_problem(RandomBits& bits, std::int64_t max_lean_tiles = 60) {
  std::vector<std::vector<std::int64_t>> blocks(static_cast<std::size_t>(bits.between(0, 9)));
  for (auto& sequence : blocks) {
    const std::int64_t count = bits.chance(0.7) ? 1 : bits.between(0, 4);
    for (std::int64_t i = 0; i < count; ++i) {
      sequence.push_back(bits.chance(0.15) ? 0 : bits.log_between(1, max_lean_tiles));
    }
  }
  return make_problem(blocks, bits.log_between(1, 8),
                      bits.chance(0.5) ? Order::kHeadByHead : Order::kHeadSynchronous);
}

// stream_k in the map's order; head-synchronous takes workers by the KV heads.
Partition stream_k(const TileMap& map, std::int64_t workers) {
  const bool turns = map.order == Order::kHeadSynchronous;
  return {PartitionKind::kStreamK, 1, turns ? workers * map.num_kv_heads : workers, map.order};
}

std::vector<Partition> draw_partitions(RandomBits& bits, const TileMap& map) {
  const std::int64_t tiles = map.num_output_tiles();
  const std::int64_t splits = bits.log_between(1, 40);
  return {{PartitionKind::kOneTile, 1, tiles + bits.between(0, 3), map.order},
          {PartitionKind::kFixedSplit, splits, tiles * splits + bits.between(0, 3), map.order},
          stream_k(map, bits.log_between(1, 500)),
          stream_k(map, bits.pick<std::int64_t>({1, 2, 7, 76, 92, 114, 132}))};
}

// All output tiles in the order of their indices: sequence, row block, KV head. Ids are
// counted in the map's order.
std::vector<OutputTile> count_tiles(const TileMap& map) {
  std::vector<OutputTile> tiles;
  for (std::int64_t b = 0; b < map.num_sequences; ++b) {
    for (std::int64_t block = 0; block < map.first_block[b + 1] - map.first_block[b]; ++block) {
      for (std::int64_t head = 0; head < map.num_kv_heads; ++head) {
        tiles.push_back({b, head, block, {}});
      }
    }
  }
  auto count = [&, id = std::int64_t{0}](OutputTile& tile) mutable {
    const std::int64_t block = map.first_block[tile.sequence] + tile.row_block;
    const std::int64_t size = map.lean_tiles_before[block + 1] - map.lean_tiles_before[block];
    tile.lean_tiles = {id, id + size};
    id += size;
  };
  if (map.order == Order::kHeadByHead) {
    for (OutputTile& tile : tiles) count(tile);
  } else {
    for (std::int64_t head = 0; head < map.num_kv_heads; ++head) {
      for (OutputTile& tile : tiles) {
        if (tile.kv_head == head) count(tile);
      }
    }
  }
  return tiles;
}

void expect_same(const OutputTile& a, const OutputTile& b) {
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.kv_head, b.kv_head);
  EXPECT_EQ(a.row_block, b.row_block);
  EXPECT_EQ(a.lean_tiles, b.lean_tiles);
}

class Partitions : public ::testing::Test {
 protected:
  // Calls check(problem, bits) on many random problems; stops at the first that fails.
  template <class Check>
  void on_random_problems(const Check& check) {
    for (std::int64_t seed = 0; seed < scaled(20'000) && !HasFailure(); ++seed) {
      RandomBits bits(static_cast<std::uint64_t>(seed));
      SCOPED_TRACE(seed);
      check(draw_problem(bits), bits);
    }
  }
};

TEST_F(Partitions, DealEveryLeanTileOnceAndInOrder) {
  on_random_problems([](const RaggedProblem& problem, RandomBits& bits) {
    for (const Partition& partition : draw_partitions(bits, problem.map)) {
      const std::int64_t step = worker_step(partition, problem.map.num_kv_heads);
      std::vector<Range> ranges;  // of the first worker, then those a step apart; then the second's
      for (std::int64_t first = 0; first < std::min(step, partition.num_workers); ++first) {
        for (std::int64_t w = first; w < partition.num_workers; w += step) {
          ranges.push_back(range_of(partition, problem.map, w));
        }
      }
      if (partition.kind != PartitionKind::kStreamK) {  // workers in the order of the tiles
        std::stable_sort(ranges.begin(), ranges.end(),
                         [](const Range& a, const Range& b) { return a.begin < b.begin; });
        std::erase_if(ranges, [](const Range& range) { return range.empty(); });
      }
      std::int64_t next = 0;
      for (const Range& range : ranges) {
        ASSERT_EQ(range.begin, next);
        ASSERT_GE(range.end, range.begin);
        next = range.end;
      }
      if (partition.num_workers > 0) {
        ASSERT_EQ(next, problem.map.num_lean_tiles());
      }
    }
  });
}

TEST_F(Partitions, StreamKDealsEqualSharesAndAtMostTwoPartialsEach) {
  on_random_problems([](const RaggedProblem& problem, RandomBits& bits) {
    const TileMap& map = problem.map;
    const std::vector<OutputTile> tiles = count_tiles(map);
    const Partition partition = stream_k(map, bits.log_between(1, 100));
    const std::int64_t least = map.num_lean_tiles() / partition.num_workers;
    for (std::int64_t w = 0; w < partition.num_workers; ++w) {
      const Range range = range_of(partition, map, w);
      ASSERT_GE(range.size(), least);
      ASSERT_LE(range.size(), least + 1);
      int partials = 0;
      for (const OutputTile& tile : tiles) {
        const Range segment = intersect(range, tile.lean_tiles);
        if (!segment.empty() && segment != tile.lean_tiles) ++partials;
      }
      ASSERT_LE(partials, 2);
    }
  });
}

// Worker w takes the head w mod Hk; the workers of a head take its tokens in order, and
// those of all heads the same tokens.
TEST_F(Partitions, HeadSynchronousCutsAllHeadsAtTheSameTokens) {
  on_random_problems([](RaggedProblem problem, RandomBits& bits) {
    problem.map.order = Order::kHeadSynchronous;
    const TileMap& map = problem.map;
    const std::int64_t heads = map.num_kv_heads;
    const Partition partition = stream_k(map, bits.log_between(1, 100));
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = 0;
    for (std::int64_t w = 0; w < partition.num_workers; ++w) {
      const Range range = range_of(partition, map, w);
      least = std::min(least, range.size());
      most = std::max(most, range.size());
      const Range of_first_head = range_of(partition, map, w - w % heads);
      const std::int64_t offset = w % heads * map.per_head();
      ASSERT_EQ(range, (Range{of_first_head.begin + offset, of_first_head.end + offset}));
      for (std::int64_t id = range.begin; id < range.end; ++id) {
        const OutputTile tile = map.tile_of(id);
        ASSERT_EQ(tile.kv_head, w % heads);
        // The same LeanTile of the same rows, in the first head.
        const OutputTile first = map.tile_of(id - offset);
        ASSERT_EQ(tile.sequence, first.sequence);
        ASSERT_EQ(tile.row_block, first.row_block);
        ASSERT_EQ(id - tile.lean_tiles.begin, id - offset - first.lean_tiles.begin);
      }
    }
    ASSERT_LE(most - least, 1);
  });
}

TEST_F(Partitions, WithOneHeadTheOrderMakesNoDifference) {
  on_random_problems([](RaggedProblem problem, RandomBits& bits) {
    problem.map.num_kv_heads = 1;
    TileMap turns = problem.map;
    problem.map.order = Order::kHeadByHead;
    turns.order = Order::kHeadSynchronous;
    const std::int64_t workers = bits.log_between(1, 200);
    for (std::int64_t w = 0; w < workers; ++w) {
      ASSERT_EQ(range_of(stream_k(problem.map, workers), problem.map, w),
                range_of(stream_k(turns, workers), turns, w));
    }
  });
}

TEST_F(Partitions, FixedSplitDealsEqualSharesOfEachOutputTile) {
  on_random_problems([](const RaggedProblem& problem, RandomBits& bits) {
    const std::vector<OutputTile> tiles = count_tiles(problem.map);
    const std::int64_t splits = bits.log_between(1, 40);
    const auto num_tiles = static_cast<std::int64_t>(tiles.size());
    const Partition partition{PartitionKind::kFixedSplit, splits, num_tiles * splits,
                              problem.map.order};
    for (std::int64_t w = 0; w < partition.num_workers; ++w) {
      const Range range = range_of(partition, problem.map, w);
      const Range tile = tiles[static_cast<std::size_t>(w / splits)].lean_tiles;
      ASSERT_GE(range.begin, tile.begin);
      ASSERT_LE(range.end, tile.end);
      ASSERT_GE(range.size(), tile.size() / splits);
      ASSERT_LE(range.size(), tile.size() / splits + 1);
    }
  });
}

TEST_F(Partitions, WorkerOfIsTheInverseOfRangeOf) {
  on_random_problems([](const RaggedProblem& problem, RandomBits& bits) {
    const TileMap& map = problem.map;
    for (const Partition& partition : draw_partitions(bits, map)) {
      for (std::int64_t w = 0; w < partition.num_workers; ++w) {
        const Range range = range_of(partition, map, w);
        for (std::int64_t id = range.begin; id < range.end; ++id) {
          if (id > range.begin + 2 && id < range.end - 2) continue;
          ASSERT_EQ(worker_of(partition, map, map.tile_of(id), id), w);
        }
      }
    }
  });
}

TEST_F(Partitions, TilesAgreeWithCounting) {
  on_random_problems([](const RaggedProblem& problem, RandomBits&) {
    const std::vector<OutputTile> tiles = count_tiles(problem.map);
    ASSERT_EQ(problem.map.num_output_tiles(), static_cast<std::int64_t>(tiles.size()));
    for (std::size_t i = 0; i < tiles.size(); ++i) {
      expect_same(problem.map.tile(static_cast<std::int64_t>(i)), tiles[i]);
      for (std::int64_t id = tiles[i].lean_tiles.begin; id < tiles[i].lean_tiles.end; ++id) {
        expect_same(problem.map.tile_of(id), tiles[i]);
      }
    }
  });
}

TEST_F(Partitions, FixedSplitOfOneIsOneTile) {
  on_random_problems([](const RaggedProblem& problem, RandomBits&) {
    const std::int64_t tiles = problem.map.num_output_tiles();
    const Partition one_tile{PartitionKind::kOneTile, 1, tiles};
    const Partition one_split{PartitionKind::kFixedSplit, 1, tiles};
    for (std::int64_t w = 0; w < tiles; ++w) {
      ASSERT_EQ(range_of(one_tile, problem.map, w), range_of(one_split, problem.map, w));
    }
  });
}

// Sequences of one row block each, all with the same number of LeanTiles.
RaggedProblem draw_equal_problem(RandomBits& bits) {
  const std::int64_t size = bits.log_between(1, 300);
  const std::vector<std::vector<std::int64_t>> blocks(
      static_cast<std::size_t>(bits.between(1, 9)),
      std::vector<std::int64_t>(static_cast<std::size_t>(bits.between(1, 2)), size));
  return make_problem(blocks, bits.log_between(1, 8));
}

TEST(PartitionsOfEqualTiles, StreamKWithAWorkerPerTileIsOneTile) {
  for (std::int64_t seed = 0; seed < scaled(5000); ++seed) {
    RandomBits bits(static_cast<std::uint64_t>(seed));
    const RaggedProblem problem = draw_equal_problem(bits);
    const std::int64_t tiles = problem.map.num_output_tiles();
    const Partition stream_k{PartitionKind::kStreamK, 1, tiles};
    const Partition one_tile{PartitionKind::kOneTile, 1, tiles};
    for (std::int64_t w = 0; w < tiles; ++w) {
      ASSERT_EQ(range_of(stream_k, problem.map, w), range_of(one_tile, problem.map, w)) << seed;
    }
  }
}

TEST(PartitionsOfEqualTiles, StreamKWithAMultipleOfWorkersIsFixedSplit) {
  for (std::int64_t seed = 0; seed < scaled(5000); ++seed) {
    RandomBits bits(static_cast<std::uint64_t>(seed));
    const RaggedProblem problem = draw_equal_problem(bits);
    const std::int64_t splits = bits.between(1, 12);
    const std::int64_t workers = problem.map.num_output_tiles() * splits;
    const Partition stream_k{PartitionKind::kStreamK, 1, workers};
    const Partition fixed_split{PartitionKind::kFixedSplit, splits, workers};
    for (std::int64_t w = 0; w < workers; ++w) {
      ASSERT_EQ(range_of(stream_k, problem.map, w), range_of(fixed_split, problem.map, w)) << seed;
    }
  }
}

TEST(EvenShare, DealsAllItemsAndShareOfFindsThem) {
  for (std::int64_t total = 0; total <= 120; ++total) {
    for (std::int64_t shares = 1; shares <= 140; ++shares) {
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < shares; ++i) {
        const Range share = even_share(total, shares, i);
        ASSERT_EQ(share.begin, next);
        ASSERT_LE(share.size() - total / shares, 1);
        ASSERT_GE(share.size(), total / shares);
        for (std::int64_t item = share.begin; item < share.end; ++item) {
          ASSERT_EQ(share_of(total, shares, item), i) << total << " in " << shares;
        }
        next = share.end;
      }
      ASSERT_EQ(next, total);
    }
  }
}

TEST(EvenShare, CutsAMultipleOfEqualPartsAsEachPartAlone) {
  for (std::int64_t part = 1; part <= 40; ++part) {
    for (std::int64_t parts = 1; parts <= 9; ++parts) {
      for (std::int64_t shares = 1; shares <= 12; ++shares) {
        for (std::int64_t i = 0; i < parts * shares; ++i) {
          const Range whole = even_share(part * parts, parts * shares, i);
          const Range alone = even_share(part, shares, i % shares);
          const std::int64_t offset = i / shares * part;
          ASSERT_EQ(whole, (Range{alone.begin + offset, alone.end + offset}));
        }
      }
    }
  }
}

// 2^40 keys per sequence in LeanTiles of 1 to 256: sums pass 2^32 at once.
TEST(HugeProblems, StayExactIn64Bits) {
  for (std::int64_t seed = 0; seed < scaled(3000); ++seed) {
    SCOPED_TRACE(seed);
    RandomBits bits(static_cast<std::uint64_t>(seed));
    std::vector<std::vector<std::int64_t>> blocks(static_cast<std::size_t>(bits.between(1, 40)));
    for (auto& sequence : blocks) {
      for (std::int64_t i = 0, count = bits.between(0, 3); i < count; ++i) {
        const std::int64_t keys = (std::int64_t{1} << 40) - bits.between(0, 1 << 20);
        sequence.push_back(bits.chance(0.1) ? 0 : ceil_div(keys, bits.pick({1, 64, 128, 256})));
      }
    }
    const RaggedProblem problem = make_problem(blocks, bits.between(1, 128));
    const TileMap& map = problem.map;
    const std::vector<OutputTile> tiles = count_tiles(map);
    for (std::size_t i = 0; i < tiles.size(); i += 1 + tiles.size() / 16) {
      const Range ids = tiles[i].lean_tiles;
      expect_same(map.tile(static_cast<std::int64_t>(i)), tiles[i]);
      if (ids.empty()) continue;
      for (const std::int64_t id : {ids.begin, ids.begin + ids.size() / 2, ids.end - 1}) {
        expect_same(map.tile_of(id), tiles[i]);
      }
    }
    const std::int64_t total = map.num_lean_tiles();
    for (const std::int64_t workers : {1, 2, 7, 76, 92, 114, 132, 1024}) {
      if (total == 0 || total > std::numeric_limits<std::int64_t>::max() / (workers + 1)) continue;
      const Partition partition{PartitionKind::kStreamK, 1, workers, Order::kHeadByHead};
      for (std::int64_t w = 0; w < workers; w += 1 + workers / 20) {
        const Range range = range_of(partition, map, w);
        const auto exact = static_cast<std::int64_t>(static_cast<__int128>(total) * w / workers);
        ASSERT_EQ(range.begin, exact);
        if (range.empty()) continue;
        ASSERT_EQ(worker_of(partition, map, map.tile_of(range.begin), range.begin), w);
        ASSERT_EQ(worker_of(partition, map, map.tile_of(range.end - 1), range.end - 1), w);
      }
    }
  }
}

TEST(DegenerateProblems, HaveEmptyRanges) {
  const RaggedProblem none = make_problem({}, 4);
  const RaggedProblem no_rows = make_problem({{}, {}, {}}, 4);
  const RaggedProblem no_keys = make_problem({{0}, {0, 0}, {0}}, 3);
  EXPECT_EQ(none.map.num_output_tiles(), 0);
  EXPECT_EQ(no_rows.map.num_output_tiles(), 0);
  EXPECT_EQ(no_keys.map.num_output_tiles(), 12);
  for (const RaggedProblem* problem : {&none, &no_rows, &no_keys}) {
    EXPECT_EQ(problem->map.num_lean_tiles(), 0);
    for (const auto kind :
         {PartitionKind::kOneTile, PartitionKind::kFixedSplit, PartitionKind::kStreamK}) {
      for (std::int64_t w = 0; w < 13; ++w) {
        EXPECT_TRUE(range_of({kind, 1, 13}, problem->map, w).empty());
      }
    }
  }
}

}  // namespace
}  // namespace leanattn
