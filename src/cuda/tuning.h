// How a kernel is launched: a table by architecture and shape, from measurements. Rows of
// the file that LEANATTN_TUNING names, as `leanattn tune` writes it, come before it.
#pragma once

#include <cstdint>

namespace leanattn::cuda {

/// Warps of a thread block, thread blocks of an SM, keys of a LeanTile.
struct LaunchShape {
  bool bulk_copies = true;  // where device and cache allow them; else by the numbers below
  int warps = 8;
  int blocks_per_sm = 1;
  int tile_n = 128;

  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

/// What a shape is chosen by.
struct LaunchKey {
  int compute_capability = 90;  // 10·major + minor
  int v_head_dim = 128;
  int row_tiles = 1;    // groups of 8 packed query rows of an output tile
  double kv_bytes = 0;  // that a call reads at its maxima
};

/// The first row that serves `key`, of the file if there is one, then of the table; or
/// what LEANATTN_CUDA_SHAPE says. Throws InvalidArgument where either variable is not what
/// is allowed.
[[nodiscard]] LaunchShape launch_shape(const LaunchKey& key);

}  // namespace leanattn::cuda
