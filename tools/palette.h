// Colours of output tiles, the same in the terminal and in SVG.
#pragma once

#include <cstdint>
#include <string>

namespace leanattn::tools {

struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;

  /// "#rrggbb"
  [[nodiscard]] std::string hex() const;
  /// Whether dark text reads better on it than white text.
  [[nodiscard]] bool light() const;
};

/// The colour of output tile `index`: twelve chosen ones, then hues that differ
/// from their neighbours.
[[nodiscard]] Colour tile_colour(std::int64_t index);

}  // namespace leanattn::tools
