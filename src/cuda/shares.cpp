#include "cuda/shares.h"

namespace leanattn::cuda {
namespace {

/// Whether a worker of `size` blocks for every output tile is enough: nothing is left to merge
/// through the workspace then. Large caches are worth all blocks.
bool whole_tiles_suffice(const ShareCounts& counts, std::int64_t size) {
  constexpr double kSmallCache = 160e6;
  constexpr double kSmallOfQuickBlocks = 240e6;
  const std::int64_t blocks = counts.output_tiles() * size;
  if (size == 1) {
    return blocks >= counts.enough.alone &&
           counts.kv_bytes <= (counts.enough.quick() ? kSmallOfQuickBlocks : kSmallCache);
  }
  return blocks >= counts.enough.in_clusters && (size > 2 || counts.kv_bytes <= kSmallCache);
}

/// Whether pairs of blocks pay. Sequences of unequal lengths, of which a plan knows nothing,
/// make many short segments, and each is a pair's to merge: of large caches one sequence only.
bool pairs_pay(const ShareCounts& counts, std::int64_t places) {
  constexpr double kMostIdle = 0.1;
  if (whole_tiles_suffice(counts, 2)) return true;
  const std::int64_t used = places / counts.heads * counts.heads;
  return counts.row_blocks == 1 &&
         static_cast<double>(used) >= (1 - kMostIdle) * static_cast<double>(places);
}

/// Shares that end where row blocks of equal length do, if that idles no more than a tenth of
/// the workers: none has a second segment then.
std::int64_t aligned(std::int64_t shares, std::int64_t row_blocks) {
  constexpr double kMostIdle = 0.1;
  const std::int64_t multiple = shares / row_blocks * row_blocks;
  return static_cast<double>(multiple) >= (1 - kMostIdle) * static_cast<double>(shares) ? multiple
                                                                                        : shares;
}

/// In one round of the places, or of large caches in more where that keeps more of them busy.
std::int64_t shares_in_rounds(const ShareCounts& counts, std::int64_t places) {
  constexpr double kRoundsFromBytes = 200e6;
  constexpr std::int64_t kMostRounds = 4;
  // Of the time: where few blocks are enough, idle ones cost less.
  const double worth_a_round = counts.enough.quick() ? 0.9 : 0.95;
  const std::int64_t most_rounds = counts.kv_bytes < kRoundsFromBytes ? 1 : kMostRounds;
  std::int64_t best = 0;
  double best_time = 0;
  for (std::int64_t rounds = 1; rounds <= most_rounds; ++rounds) {
    const std::int64_t shares = aligned(places * rounds / counts.heads, counts.row_blocks);
    if (shares == 0) continue;
    const double time = static_cast<double>(rounds) / static_cast<double>(shares);
    if (best > 0 && time >= worth_a_round * best_time) continue;
    best = shares;
    best_time = time;
  }
  return best;
}

}  // namespace

EnoughBlocks enough_blocks(const Problem& problem, std::int64_t tile_m, double kv_bytes) {
  constexpr std::int64_t kCopiedTogether = 16;  // keys
  const bool together =
      problem.layout == KvLayout::kContiguous || problem.page_size % kCopiedTogether == 0;
  const bool long_rows = problem.head_dim + problem.v_head_dim >= 192;
  const auto up_to = [&](double bytes, std::int64_t few, std::int64_t many) {
    return kv_bytes <= bytes ? few : many;
  };
  if (tile_m > 16) return {96, 96};
  if (together && long_rows) return {EnoughBlocks::kQuick, up_to(60e6, 48, 64)};
  const std::int64_t enough = up_to(together ? 70e6 : 40e6, 64, 96);
  return {enough, enough};
}

std::int64_t cluster_size(const ShareCounts& counts, std::int64_t most, const Resident& resident) {
  const std::int64_t tiles = counts.output_tiles();
  if (whole_tiles_suffice(counts, 1)) return 1;
  if (most > 2) {
    const std::int64_t clusters = resident(most);
    const bool fits = tiles <= clusters;
    if (fits && clusters / tiles * tiles * most >= counts.enough.in_clusters) return most;
  }
  if (most < 2) return 1;
  const std::int64_t pairs = resident(2);
  return tiles <= pairs && pairs_pay(counts, pairs) ? 2 : 1;
}

std::int64_t shares_of_head(const ShareCounts& counts, std::int64_t cluster, std::int64_t places) {
  if (counts.output_tiles() <= places && whole_tiles_suffice(counts, cluster)) {
    return counts.row_blocks;
  }
  if (cluster == 1) return shares_in_rounds(counts, places);
  return places / counts.output_tiles() * counts.row_blocks;
}

}  // namespace leanattn::cuda
