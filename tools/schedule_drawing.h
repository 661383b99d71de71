// Draws schedules: workers downwards, time to the right, output tiles as colours.
#pragma once

#include <span>
#include <string>

#include "schedule_model.h"

namespace leanattn::tools {

/// How a terminal is drawn to.
struct TextStyle {
  int width = 100;      // columns
  bool colour = false;  // ANSI colours; letters otherwise
};

/// One line that names the partition and what it costs.
[[nodiscard]] std::string headline(const Schedule& schedule);

/// "one_tile: a worker per output tile (FlashAttention-2)"
[[nodiscard]] std::string title(const Partition& partition);

/// "sequence 0, head 1", with the row block where a head has several. Shortened to
/// what tells the tiles of this problem apart.
[[nodiscard]] std::string tile_name(const OutputTile& tile, const TileMap& map);

/// The timeline of `schedule`, time from 0 to `time_end` LeanTiles, with its
/// headline and without a legend.
[[nodiscard]] std::string draw_text(const Schedule& schedule, std::int64_t time_end,
                                    const TextStyle& style);

/// What the colours, letters and signs of `draw_text` mean.
[[nodiscard]] std::string text_legend(const TileMap& map, const TextStyle& style);

/// A picture of `schedules` one above the other on one time axis, as in the first
/// figure of LeanAttention (arXiv 2405.10480). `caption` says what is computed;
/// `command` is kept in the file's description.
[[nodiscard]] std::string draw_svg(std::span<const Schedule> schedules, const TileMap& map,
                                   const std::string& caption, const std::string& command);

}  // namespace leanattn::tools
