#include "cuda/tuning.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda/tuning_file.h"
#include "leanattn/error.h"

namespace leanattn::cuda {
namespace {

// Devices without bulk copies, and caches that do not suit them, take the other numbers.
constexpr TuningRow kTable[] = {
    // compute capability, v_head_dim, row tiles, MB up to → bulk copies, warps, blocks, keys
    {kAny, kAny, kAny, kAny, {true, 8, 1, 128}},
};

/// LEANATTN_CUDA_SHAPE, "warps,blocks per SM,keys of a LeanTile", overrides file and table:
/// for measuring. 0 warps: bulk copies.
bool read_override(LaunchShape& shape) {
  const char* text = std::getenv("LEANATTN_CUDA_SHAPE");
  if (text == nullptr || *text == 0) return false;
  const int read = std::sscanf(text, "%d,%d,%d", &shape.warps, &shape.blocks_per_sm, &shape.tile_n);
  shape.bulk_copies = shape.warps == 0;
  if (shape.bulk_copies) shape.warps = 8;
  check(
      read == 3 && (shape.warps == 4 || shape.warps == 8) && shape.blocks_per_sm >= 1 &&
          shape.blocks_per_sm <= 8 && shape.tile_n >= 16 && shape.tile_n <= 65536 &&
          shape.tile_n % 16 == 0,
      "LEANATTN_CUDA_SHAPE is ", text,
      "; it must be three numbers: 0, 4 or 8 warps, 1 to 8 thread blocks of an SM, and a multiple "
      "of 16 up to 65536 keys of a LeanTile");
  return true;
}

/// The rows of LEANATTN_TUNING, read once.
const std::vector<TuningRow>& file_rows() {
  static const std::vector<TuningRow> rows = [] {
    const char* path = std::getenv("LEANATTN_TUNING");
    return path == nullptr || *path == 0 ? std::vector<TuningRow>{} : read_tuning_file(path);
  }();
  return rows;
}

}  // namespace

LaunchShape launch_shape(const LaunchKey& key) {
  LaunchShape shape;
  if (read_override(shape)) return shape;
  const TuningRow* row = find_row(file_rows(), key);
  if (row == nullptr) row = find_row(kTable, key);
  return row->shape;  // the last row of the table serves every key
}

}  // namespace leanattn::cuda
