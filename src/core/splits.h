// How many workers FlashDecoding gives an output tile. What fixed_split takes where it
// is not told, and what `leanattn plan` draws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "leanattn/partition.h"

namespace leanattn::core {

/// Workers per output tile for `tiles` output tiles of `lean_tiles` LeanTiles on a machine of
/// `workers`, as FlashDecoding chooses them: one where the output tiles nearly fill the
/// machine; else the fewest whose rounds of workers leave it at most 15% less busy than the
/// best count would, up to one per LeanTile and at most 128.
[[nodiscard]] inline std::int64_t flash_decoding_splits(std::int64_t tiles, std::int64_t workers,
                                                        std::int64_t lean_tiles) {
  constexpr std::int64_t kMostSplits = 128;
  constexpr double kNearlyFull = 0.8;
  constexpr double kCloseToBest = 0.85;
  if (tiles == 0 || static_cast<double>(tiles) >= kNearlyFull * static_cast<double>(workers)) {
    return 1;
  }
  const std::int64_t most = std::clamp<std::int64_t>(std::min(workers, lean_tiles), 1, kMostSplits);
  // Share of the machine that is busy over whole rounds; 0 where one split fewer has as
  // many LeanTiles each.
  const auto busy = [&](std::int64_t splits) {
    if (splits > 1 && ceil_div(lean_tiles, splits) == ceil_div(lean_tiles, splits - 1)) return 0.0;
    const double rounds = static_cast<double>(tiles * splits) / static_cast<double>(workers);
    return rounds / std::ceil(rounds);
  };
  double best = 0;
  for (std::int64_t splits = 1; splits <= most; ++splits) best = std::max(best, busy(splits));
  std::int64_t splits = 1;
  while (busy(splits) < kCloseToBest * best) ++splits;
  return splits;
}

}  // namespace leanattn::core
