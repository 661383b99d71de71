// How a kernel is launched: a table by architecture and shape, from measurements. Rows of
// the file that LEANATTN_TUNING names, as `leanattn tune` writes it, come before it.
#pragma once

#include <cstdint>

namespace leanattn::cuda {

struct LaunchShape {
  int blocks_per_sm = 1;  // thread blocks, at most: as many as there is shared memory for
  int tile_n = 128;       // keys of a LeanTile
  int cluster = 1;        // thread blocks of a worker, if that leaves one for every output tile

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
