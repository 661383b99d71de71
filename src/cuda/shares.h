// Of how many thread blocks a worker of stream_k is made, and how many workers share the KV
// heads: from what runs at once, so that little is idle and little is merged. The thresholds
// were chosen on an H200; LEANATTN_CUDA_SHAPE compares the choices.
#pragma once

#include <cstdint>
#include <functional>

#include "leanattn/problem.h"

namespace leanattn::cuda {

/// Blocks that read a cache about as quickly as all of the device: less than half of them where
/// they spend less time on copying and computing than on waiting for memory. Short keys take more
/// copies for as many bytes, keys with pages of their own more instructions for a copy. Of the
/// smallest caches reading is not what takes the time.
struct EnoughBlocks {
  static constexpr std::int64_t kQuick = 48;

  std::int64_t alone = 64;        // each its own worker
  std::int64_t in_clusters = 64;  // which end later than their last block

  [[nodiscard]] bool quick() const { return alone <= kQuick; }
};
[[nodiscard]] EnoughBlocks enough_blocks(const Problem& problem, std::int64_t tile_m,
                                         double kv_bytes);

/// What of a call matters.
struct ShareCounts {
  std::int64_t heads = 1;       // KV heads
  std::int64_t row_blocks = 1;  // of all sequences, at least 1
  double kv_bytes = 0;          // that the call reads at its maxima
  EnoughBlocks enough;

  [[nodiscard]] std::int64_t output_tiles() const { return heads * row_blocks; }
};

/// Clusters of so many blocks that run at once.
using Resident = std::function<std::int64_t(std::int64_t size)>;

/// Blocks of a worker: 1 if a block for every output tile is enough; else `most`, if that leaves a
/// cluster for every output tile, or 2, or 1. The blocks of a cluster merge in each other's shared
/// memory, which takes less time than a merge through the workspace.
[[nodiscard]] std::int64_t cluster_size(const ShareCounts& counts, std::int64_t most,
                                        const Resident& resident);

/// Into how many shares each head is cut, all heads at the same tokens, if there are `places`
/// for workers at once, each of `cluster` blocks; 0: there are too few for that, and all heads
/// are dealt as one line. A place may have several shares, one after the other.
[[nodiscard]] std::int64_t shares_of_head(const ShareCounts& counts, std::int64_t cluster,
                                          std::int64_t places);

}  // namespace leanattn::cuda
