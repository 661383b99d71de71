// How the blocks of every kernel are laid out for every compute capability. Needs no GPU.
#include "cuda/block_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/kernel_table.h"

namespace leanattn::cuda {
namespace {

TEST(BlockLayouts, AreChosenByComputeCapability) {
  const auto kilobytes = [](int compute_capability) {
    return kBlockKilobytes[static_cast<std::size_t>(block_layout_of(compute_capability))];
  };
  for (const int most : {90, 100, 103}) EXPECT_EQ(kilobytes(most), 227);
  for (const int less : {80, 87}) EXPECT_EQ(kilobytes(less), 163);
  for (const int least : {86, 89, 120, 121}) EXPECT_EQ(kilobytes(least), 99);
}

TEST(BlockLayouts, FitAndUseMostOfTheRoom) {
  for (const CompiledKernel& kernel : compiled_kernels()) {
    for (std::size_t i = 0; i < kBlockKilobytes.size(); ++i) {
      SCOPED_TRACE(testing::Message()
                   << kernel.head_dim << '/' << kernel.v_head_dim << ", " << kernel.tile_m()
                   << " rows, " << kBlockKilobytes[i] << " KB");
      const BlockLayout& layout = kernel.layouts[i];
      const int room = kBlockKilobytes[i] * 1024;
      EXPECT_LE(layout.shared_bytes, room);
      if (layout.threads == 0) continue;
      EXPECT_EQ(layout.threads % 32, 0);
      EXPECT_EQ(layout.clusters, i == 0 && !kernel.is_wide());
      // Of a ring of fewer than twelve stages, no further one found room.
      const int stage = 64 * 2 * (kernel.head_dim + kernel.v_head_dim);
      if (!kernel.is_wide()) {
        EXPECT_GT(layout.shared_bytes, std::min(room - stage, 11 * stage));
      }
    }
  }
}

TEST(BlockLayouts, AreWhereTheDocumentsSaySo) {
  for (const CompiledKernel& kernel : compiled_kernels()) {
    const int longest = std::max(kernel.head_dim, kernel.v_head_dim);
    EXPECT_GT(kernel.layouts[0].threads, 0);
    EXPECT_EQ(kernel.layouts[1].threads > 0, longest <= 192) << longest;
    EXPECT_EQ(kernel.layouts[2].threads > 0, longest <= 128) << longest;
  }
}

}  // namespace
}  // namespace leanattn::cuda
