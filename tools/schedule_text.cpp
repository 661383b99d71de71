// The timeline for terminals. See schedule_drawing.h.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "leanattn/attention.h"
#include "palette.h"
#include "schedule_drawing.h"

namespace leanattn::tools {
namespace {

constexpr std::string_view kReset = "\x1b[0m";
constexpr std::int64_t kMaxRows = 48;    // workers drawn; more are sampled evenly
constexpr std::int64_t kMaxLegend = 24;  // output tiles named
constexpr int kLabelColumns = 12;        // "worker 123 "

char letter(std::int64_t output_tile) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  return kLetters[static_cast<std::size_t>(output_tile) % kLetters.size()];
}

std::string cell(const Segment* segment, bool in_time, bool colour) {
  if (segment == nullptr) {
    if (!in_time) return " ";
    return colour ? "\x1b[2m·\x1b[0m" : ".";
  }
  if (!colour) return std::string(1, letter(segment->output_tile));
  const Colour back = tile_colour(segment->output_tile);
  const int ink = back.light() ? 0 : 255;
  return fmt::format("\x1b[48;2;{};{};{}m\x1b[38;2;{};{};{}m{}{}", back.red, back.green, back.blue,
                     ink, ink, ink, segment->partial ? "╱" : " ", kReset);
}

std::string row(const std::vector<const Segment*>& segments, const Schedule& schedule,
                std::int64_t time_end, int columns, bool colour) {
  std::string line;
  for (int column = 0; column < columns; ++column) {
    const double time = (column + 0.5) / columns * static_cast<double>(time_end);
    const auto found = std::find_if(segments.begin(), segments.end(), [&](const Segment* segment) {
      return static_cast<double>(segment->start) <= time &&
             time < static_cast<double>(segment->stop());
    });
    line += cell(found == segments.end() ? nullptr : *found,
                 time < static_cast<double>(schedule.makespan), colour);
  }
  return line;
}

}  // namespace

std::string title(const Partition& partition) {
  switch (partition.kind) {
    case PartitionKind::kOneTile: return "one_tile: a worker per output tile (FlashAttention-2)";
    case PartitionKind::kFixedSplit:
      return fmt::format("fixed_split: {} worker{} per output tile (FlashDecoding)",
                         partition.num_splits, partition.num_splits == 1 ? "" : "s");
    case PartitionKind::kStreamK:
      return "stream_k: equal shares, across output tiles (LeanAttention)";
  }
  return {};
}

std::string headline(const Schedule& schedule) {
  return fmt::format("balance {}, {} LeanTiles long, {} partial{}, workspace {}",
                     percent(schedule.balance()), schedule.makespan, schedule.num_partials,
                     schedule.num_partials == 1 ? "" : "s", bytes_text(schedule.workspace_bytes));
}

std::string tile_name(const OutputTile& tile, const TileMap& map) {
  std::string name;
  if (map.num_sequences > 1) name = fmt::format("sequence {}", tile.sequence);
  if (map.num_kv_heads > 1 || name.empty()) {
    name += fmt::format("{}head {}", name.empty() ? "" : ", ", tile.kv_head);
  }
  if (map.num_row_blocks() > map.num_sequences) name += fmt::format(", rows {}", tile.row_block);
  return name;
}

std::string draw_text(const Schedule& schedule, std::int64_t time_end, const TextStyle& style) {
  const int columns = std::max(10, style.width - kLabelColumns);
  std::vector<std::vector<const Segment*>> rows(
      static_cast<std::size_t>(schedule.num_machine_workers));
  for (const Segment& segment : schedule.segments) {
    rows[static_cast<std::size_t>(segment.machine_worker)].push_back(&segment);
  }
  std::string text = title(schedule.partition) + "\n";
  const std::int64_t drawn = std::min(schedule.num_machine_workers, kMaxRows);
  for (std::int64_t i = 0; i < drawn; ++i) {
    const std::int64_t worker = i * schedule.num_machine_workers / drawn;
    text += fmt::format("worker {:<{}}", worker, kLabelColumns - 7);
    text += row(rows[static_cast<std::size_t>(worker)], schedule,
                std::max<std::int64_t>(time_end, 1), columns, style.colour);
    text += "\n";
  }
  if (drawn < schedule.num_machine_workers) {
    text += fmt::format("({} of {} workers shown)\n", drawn, schedule.num_machine_workers);
  }
  return text + headline(schedule) + "\n";
}

std::string text_legend(const TileMap& map, const TextStyle& style) {
  std::string text =
      style.colour ? "╱ partial, to be merged   · idle\n" : "letters: output tiles   .: idle\n";
  const std::int64_t shown = std::min(map.num_output_tiles(), kMaxLegend);
  int column = 0;
  for (std::int64_t i = 0; i < shown; ++i) {
    const std::string name = tile_name(map.tile(i), map);
    const Segment swatch{0, 0, i, {}, {}, 0, false, false};
    const int width = static_cast<int>(name.size()) + 5;
    if (column > 0 && column + width > style.width) {
      text += "\n";
      column = 0;
    }
    text += fmt::format("{} {}   ", cell(&swatch, true, style.colour), name);
    column += width;
  }
  if (shown < map.num_output_tiles()) {
    text += fmt::format("and {} more", map.num_output_tiles() - shown);
  }
  return text + "\n";
}

}  // namespace leanattn::tools
