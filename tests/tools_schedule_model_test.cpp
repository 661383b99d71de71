// The schedule model and its drawings: small cases worked out by hand, and that no
// LeanTile is lost or done twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "leanattn/error.h"
#include "schedule_drawing.h"
#include "schedule_model.h"

namespace leanattn::tools {
namespace {

// `heads` heads of 64 over `lengths`, in LeanTiles of 256 keys.
Shape shape(std::int64_t heads, std::vector<std::int64_t> lengths) {
  Shape shape;
  shape.num_q_heads = shape.num_kv_heads = heads;
  shape.head_dim = shape.v_head_dim = 64;
  shape.lengths = std::move(lengths);
  shape.tile_n = 256;
  return shape;
}

Schedule schedule(const Shape& shape, PartitionKind kind, std::int64_t workers,
                  std::int64_t splits = 0) {
  const OwnedTileMap owned(shape);
  return schedule_of(shape, owned.map(), partition_for(kind, owned.map(), workers, splits),
                     workers);
}

// The first figure of LeanAttention: two heads of ten LeanTiles on five workers.
TEST(ScheduleModel, FirstFigureOfThePaper) {
  const Shape figure = shape(2, {2560});
  const Schedule one_tile = schedule(figure, PartitionKind::kOneTile, 5);
  EXPECT_EQ(one_tile.makespan, 10);
  EXPECT_DOUBLE_EQ(one_tile.balance(), 0.4);
  EXPECT_EQ(one_tile.num_partials, 0);
  EXPECT_EQ(one_tile.workspace_bytes, 0);

  const Schedule fixed_split = schedule(figure, PartitionKind::kFixedSplit, 5, 2);
  EXPECT_EQ(fixed_split.makespan, 5);
  EXPECT_DOUBLE_EQ(fixed_split.balance(), 0.8);
  EXPECT_EQ(fixed_split.num_partials, 4);

  const Schedule stream_k = schedule(figure, PartitionKind::kStreamK, 5);
  EXPECT_EQ(stream_k.makespan, 4);
  EXPECT_DOUBLE_EQ(stream_k.balance(), 1.0);
  EXPECT_EQ(stream_k.num_partials, 6);
  EXPECT_EQ(stream_k.workspace_bytes, 6 * (64 + 2) * 4);
}

// Three output tiles of 4, 1 and 2 LeanTiles on two workers: 0 takes the first, 1
// the second and then the third.
TEST(ScheduleModel, StartsWorkersWhereOneIsFreeFirst) {
  const Schedule result = schedule(shape(1, {1024, 256, 512}), PartitionKind::kOneTile, 2);
  ASSERT_EQ(result.segments.size(), 3u);
  EXPECT_EQ(result.segments[0].machine_worker, 0);
  EXPECT_EQ(result.segments[1].machine_worker, 1);
  EXPECT_EQ(result.segments[2].machine_worker, 1);
  EXPECT_EQ(result.segments[2].start, 1);
  EXPECT_EQ(result.makespan, 4);
}

TEST(ScheduleModel, CoversEveryLeanTileOnce) {
  Shape causal = shape(4, {5000, 0, 77, 12345, 256});
  causal.num_kv_heads = 2;
  causal.q_len = 37;
  causal.tile_m = 16;
  causal.window.causal = true;
  const OwnedTileMap owned(causal);
  for (const PartitionKind kind :
       {PartitionKind::kOneTile, PartitionKind::kFixedSplit, PartitionKind::kStreamK}) {
    for (const std::int64_t workers : {1, 2, 7, 132}) {
      const Schedule result =
          schedule_of(causal, owned.map(), partition_for(kind, owned.map(), workers, 3), workers);
      std::int64_t next = 0;
      std::vector<std::int64_t> busy_until(static_cast<std::size_t>(workers), 0);
      for (const Segment& segment : result.segments) {
        EXPECT_EQ(segment.lean_tiles.begin, next);
        next = segment.lean_tiles.end;
        auto& busy = busy_until[static_cast<std::size_t>(segment.machine_worker)];
        EXPECT_GE(segment.start, busy);
        busy = segment.stop();
        EXPECT_LE(segment.stop(), result.makespan);
        EXPECT_EQ(segment.partial, segment.lean_tiles != segment.tile.lean_tiles);
      }
      EXPECT_EQ(next, owned.map().num_lean_tiles());
      EXPECT_LE(result.balance(), 1.0);
      if (kind == PartitionKind::kStreamK) {
        EXPECT_LE(result.num_partials, 2 * workers);
        EXPECT_LE(result.makespan, ceil_div(next, workers));
      }
    }
  }
}

TEST(ScheduleModel, NothingToDoIsInBalance) {
  for (const auto& lengths : {std::vector<std::int64_t>{}, std::vector<std::int64_t>{0, 0}}) {
    for (const PartitionKind kind :
         {PartitionKind::kOneTile, PartitionKind::kFixedSplit, PartitionKind::kStreamK}) {
      const Schedule result = schedule(shape(2, lengths), kind, 3);
      EXPECT_TRUE(result.segments.empty());
      EXPECT_DOUBLE_EQ(result.balance(), 1.0);
    }
  }
}

TEST(ScheduleModel, RefusesShapesThatMakeNoSense) {
  Shape odd = shape(3, {100});
  odd.num_kv_heads = 2;
  EXPECT_THROW(OwnedTileMap{odd}, InvalidArgument);
  EXPECT_THROW(OwnedTileMap{shape(0, {100})}, InvalidArgument);
  EXPECT_THROW(OwnedTileMap{shape(1, {-1})}, InvalidArgument);
  EXPECT_THROW((void)schedule(shape(1, {100}), PartitionKind::kStreamK, 0), InvalidArgument);
}

TEST(ScheduleModel, WordsForNumbers) {
  EXPECT_EQ(percent(1.0), "100%");
  EXPECT_EQ(percent(0.999), "99%");
  EXPECT_EQ(bytes_text(0), "0 bytes");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(std::int64_t{20} << 20), "20 MiB");
}

TEST(ScheduleDrawing, TextHasARowPerWorkerAndTheLettersOfItsTiles) {
  const Schedule stream_k = schedule(shape(2, {2560}), PartitionKind::kStreamK, 5);
  const std::string text = draw_text(stream_k, stream_k.makespan, {32, false});
  EXPECT_NE(text.find("worker 0    aaaaaaaaaaaaaaaaaaaa\n"), std::string::npos) << text;
  EXPECT_NE(text.find("worker 2    aaaaaaaaaabbbbbbbbbb\n"), std::string::npos) << text;
  EXPECT_NE(text.find("balance 100%"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(draw_text(stream_k, stream_k.makespan, {32, true}).find("\x1b["), std::string::npos);
}

TEST(ScheduleDrawing, SvgKeepsItsCommandAndIsWellFormed) {
  const Shape figure = shape(2, {2560});
  const OwnedTileMap owned(figure);
  const Schedule both[] = {schedule(figure, PartitionKind::kOneTile, 5),
                           schedule(figure, PartitionKind::kStreamK, 5)};
  const std::string svg = draw_svg(both, owned.map(), "a < b & c", "leanattn plan --workers 5");
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_NE(svg.find("<desc>leanattn plan --workers 5</desc>"), std::string::npos);
  EXPECT_NE(svg.find("a &lt; b &amp; c"), std::string::npos);
  EXPECT_NE(svg.find("balance 40%"), std::string::npos);
  EXPECT_NE(svg.find("balance 100%"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace leanattn::tools
