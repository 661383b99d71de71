// Rows of the launch table, and the text file that holds them: a row a line,
//
//   compute_capability v_head_dim row_tiles max_mb blocks tile_n cluster
//   90 64 1 600 1 128 8        # up to 600 MB of keys and values
//   90 64 * * 1 256 1          # more of them, or more rows
//
// where * is any. Empty lines and what follows a # mean nothing.
#pragma once

#include <istream>
#include <span>
#include <string>
#include <vector>

#include "cuda/tuning.h"

namespace leanattn::cuda {

inline constexpr int kAny = 0;

/// The shape of calls on devices of one compute capability, up to a v_head_dim, a number
/// of row tiles and a size.
struct TuningRow {
  int compute_capability = kAny;  // 10·major + minor, exactly
  int most_v_head_dim = kAny;
  int most_row_tiles = kAny;
  int most_megabytes = kAny;  // 10^6 bytes of keys and values that a call reads
  LaunchShape shape;

  [[nodiscard]] bool serves(const LaunchKey& key) const;
  friend bool operator==(const TuningRow&, const TuningRow&) = default;
};

/// What is wrong with the numbers of `shape`, and what is allowed; empty if nothing.
[[nodiscard]] std::string complaint(const LaunchShape& shape);

/// The first of `rows` that serves `key`; null if none does.
[[nodiscard]] const TuningRow* find_row(std::span<const TuningRow> rows, const LaunchKey& key);

/// The rows of a file called `name`. Throws InvalidArgument with name, line and what is
/// allowed there.
[[nodiscard]] std::vector<TuningRow> parse_tuning(std::istream& text, const std::string& name);

/// The same of the file at `path`; also throws where it cannot be read.
[[nodiscard]] std::vector<TuningRow> read_tuning_file(const std::string& path);

}  // namespace leanattn::cuda
