#include "cuda/tuning.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/tuning_file.h"
#include "leanattn/error.h"

namespace leanattn::cuda {
namespace {

constexpr TuningRow kTable[] = {
    // compute capability, v_head_dim, row tiles, MB up to → blocks, tile_n, cluster at most
    {kAny, kAny, kAny, 600, {1, 128, 8}},
    {kAny, kAny, kAny, kAny, {1, 128, 2}},
};

/// LEANATTN_CUDA_SHAPE, "blocks,tile_n,cluster", overrides file and table: for measuring.
bool read_override(LaunchShape& shape) {
  const char* text = std::getenv("LEANATTN_CUDA_SHAPE");
  if (text == nullptr || *text == 0) return false;
  const int read =
      std::sscanf(text, "%d,%d,%d", &shape.blocks_per_sm, &shape.tile_n, &shape.cluster);
  const std::string wrong = read == 3
                                ? complaint(shape)
                                : std::string("three numbers are allowed: blocks,tile_n,cluster");
  check(wrong.empty(), "LEANATTN_CUDA_SHAPE is ", text, "; ", wrong);
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
