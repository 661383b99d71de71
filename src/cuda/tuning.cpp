#include "cuda/tuning.h"

#include <cstdio>
#include <cstdlib>

#include "leanattn/error.h"

namespace leanattn::cuda {
namespace {

/// LEANATTN_CUDA_SHAPE, "warps,blocks per SM,keys of a LeanTile", overrides the table: for
/// measuring. 0 warps: bulk copies.
bool read_override(LaunchShape& shape) {
  const char* text = std::getenv("LEANATTN_CUDA_SHAPE");
  if (text == nullptr || *text == 0) return false;
  const int read = std::sscanf(text, "%d,%d,%d", &shape.warps, &shape.blocks_per_sm, &shape.tile_n);
  shape.bulk_copies = shape.warps == 0;
  if (shape.bulk_copies) shape.warps = 8;
  check(read == 3 && (shape.warps == 4 || shape.warps == 8) && shape.blocks_per_sm >= 1 &&
            shape.blocks_per_sm <= 8 && shape.tile_n >= 16 && shape.tile_n <= 65536 &&
            shape.tile_n % 16 == 0,
        "LEANATTN_CUDA_SHAPE is ", text,
        "; it must be three numbers: 0, 4 or 8 warps, 1 to 8 thread blocks of an SM, and a multiple "
        "of 16 up to 65536 keys of a LeanTile");
  return true;
}

}  // namespace

LaunchShape launch_shape(const LaunchKey&) {
  LaunchShape shape;
  if (read_override(shape)) return shape;
  return {true, 8, 1, 128};
}

}  // namespace leanattn::cuda
