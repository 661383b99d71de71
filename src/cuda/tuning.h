// How a kernel is launched: a small table per architecture, from measurements, which a
// file made by `leanattn tune` replaces.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/kernel_table.h"

namespace leanattn::cuda {

/// Warps of a thread block, thread blocks of an SM, keys of a LeanTile.
struct LaunchShape {
  bool bulk_copies = true;  // where the device and the cache allow them
  int warps = 8;
  int blocks_per_sm = 1;
  int tile_n = 128;

  friend bool operator==(const LaunchShape&, const LaunchShape&) = default;
};

/// What a shape is chosen by.
struct LaunchKey {
  int compute_capability = 90;  // 10·major + minor
  int v_head_dim = 128;
  int row_tiles = 1;
  double kv_bytes = 0;  // that a call reads at its maxima
};

[[nodiscard]] LaunchShape launch_shape(const LaunchKey& key);

}  // namespace leanattn::cuda
