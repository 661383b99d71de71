// What leanattn tune writes.
#include <gtest/gtest.h>

#include "tune_measure.h"

namespace leanattn::tools {
namespace {

TuneResult result(std::int64_t dim, std::int64_t row_tiles, std::int64_t megabytes,
                  const LaunchShape& best) {
  return {{ElementType::kBFloat16, dim, dim, row_tiles, megabytes}, best, 1e-6, 2e-6};
}

TEST(TuningText, RowsReachHalfWayAndNeighboursOfOneShapeAreOne) {
  const LaunchShape cluster{1, 128, 8};
  const LaunchShape alone{1, 64, 1};
  const std::vector<TuneResult> results{result(64, 1, 4, cluster), result(64, 1, 32, cluster),
                                        result(64, 1, 128, alone), result(64, 2, 4, alone),
                                        result(128, 1, 4, alone),  result(128, 1, 128, cluster)};
  EXPECT_EQ(tuning_text(results, 90, "made here"),
            "# made here\n"
            "# compute_capability v_head_dim row_tiles max_mb blocks tile_n cluster\n"
            "90 64 1 64 1 128 8\n"
            "90 64 1 * 1 64 1\n"
            "90 64 2 * 1 64 1\n"
            "90 128 1 23 1 64 1\n"
            "90 128 1 * 1 128 8\n");
}

TEST(LaunchShapes, AreDifferent) {
  const std::vector<LaunchShape> all = all_launch_shapes();
  EXPECT_EQ(all.front(), LaunchShape{});  // what is taken unless another is better
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i] == all[j]) << i << " " << j;
  }
}

}  // namespace
}  // namespace leanattn::tools
