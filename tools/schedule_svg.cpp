// The picture of schedules as SVG. See schedule_drawing.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "palette.h"
#include "schedule_drawing.h"

namespace leanattn::tools {
namespace {

// All sizes in pixels.
constexpr double kWidth = 1120;
constexpr double kLeft = 96;
constexpr double kRight = 40;
constexpr double kTop = 86;
constexpr double kPanelTitle = 34;
constexpr double kPanelGap = 34;
constexpr double kLegendLine = 24;
constexpr double kChartWidth = kWidth - kLeft - kRight;
constexpr double kCharWidth = 7.2;  // of the 12 px labels
constexpr std::int64_t kMaxLegend = 20;

constexpr const char* kStyle = R"svg(<style>
  text { font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1f2933; }
  .caption { font-size: 20px; font-weight: 600; }
  .name { font-size: 16px; font-weight: 600; }
  .note { font-size: 13px; fill: #52606d; }
  .fact { font-size: 14px; font-weight: 600; }
  .tick { font-size: 12px; fill: #7b8794; }
  .label { font-size: 12px; }
</style>
<defs>
  <pattern id="partial" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
    <rect width="2.4" height="7" fill="#ffffff" fill-opacity="0.42"/>
  </pattern>
  <pattern id="idle" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)">
    <rect width="8" height="8" fill="#f5f7fa"/><rect width="1.2" height="8" fill="#d5dbe3"/>
  </pattern>
</defs>
)svg";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      default: result += c;
    }
  }
  return result;
}

class Picture {
 public:
  Picture(std::span<const Schedule> schedules, const TileMap& map)
      : schedules_(schedules), map_(map) {
    for (const Schedule& schedule : schedules) {
      time_end_ = std::max(time_end_, schedule.makespan);
      num_workers_ = std::max(num_workers_, schedule.num_machine_workers);
    }
    row_height_ = std::clamp(230.0 / static_cast<double>(num_workers_), 2.0, 30.0);
  }

  std::string draw(const std::string& caption, const std::string& command) {
    double y = kTop;
    for (const Schedule& schedule : schedules_) y = panel(schedule, y);
    y = axis(y - kPanelGap + 6);
    y = legend(y + 34);
    std::string head = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0} {1:.0f}\" role=\"img\">\n<desc>{2}</desc>\n",
        kWidth, y, escaped(command));
    head += kStyle;
    head += fmt::format("<rect width=\"{}\" height=\"{:.0f}\" fill=\"#ffffff\"/>\n", kWidth, y);
    head += fmt::format(
        "<text class=\"caption\" x=\"{}\" y=\"38\">Who computes what, and when</text>\n", kLeft);
    head +=
        fmt::format("<text class=\"note\" x=\"{}\" y=\"60\">{}</text>\n", kLeft, escaped(caption));
    return head + body_ + "</svg>\n";
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }

  [[nodiscard]] double x_of(std::int64_t time) const {
    return kLeft + kChartWidth * static_cast<double>(time) /
                       static_cast<double>(std::max<std::int64_t>(time_end_, 1));
  }

  // One schedule; returns where the next may begin.
  double panel(const Schedule& schedule, double y) {
    const std::string name = title(schedule.partition);
    const std::size_t colon = name.find(':');
    add("<text x=\"{}\" y=\"{:.1f}\"><tspan class=\"name\">{}</tspan>"
        "<tspan class=\"note\" dx=\"10\">{}</tspan></text>\n",
        kLeft, y + 20, name.substr(0, colon), name.substr(colon + 2));
    add("<text class=\"fact\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">balance {} · {} partial{} "
        "· "
        "workspace {}</text>\n",
        kWidth - kRight, y + 20, percent(schedule.balance()), schedule.num_partials,
        schedule.num_partials == 1 ? "" : "s", bytes_text(schedule.workspace_bytes));
    y += kPanelTitle;
    const double height = row_height_ * static_cast<double>(schedule.num_machine_workers);
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
        "fill=\"url(#idle)\"/>\n",
        kLeft, y, x_of(schedule.makespan) - kLeft, height);
    worker_labels(schedule, y);
    for (const Segment& segment : schedule.segments) draw_segment(segment, y);
    const double end = x_of(schedule.makespan);
    add("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"#1f2933\" "
        "stroke-width=\"1.5\"/>\n",
        end, y - 4, y + height + 4);
    if (schedule.makespan < time_end_) {
      add("<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\">done after {}</text>\n", end + 8,
          y + height / 2 + 4, schedule.makespan);
    }
    return y + height + kPanelGap;
  }

  void worker_labels(const Schedule& schedule, double y) {
    const auto every = static_cast<std::int64_t>(std::ceil(15.0 / row_height_));
    for (std::int64_t worker = 0; worker < schedule.num_machine_workers; worker += every) {
      add("<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">worker {}</text>\n",
          kLeft - 10, y + row_height_ * (static_cast<double>(worker) + 0.5) + 4, worker);
    }
  }

  void draw_segment(const Segment& segment, double top) {
    const double gap = row_height_ > 8 ? 1.5 : 0.2;
    const double x = x_of(segment.start);
    const double width = std::max(0.6, x_of(segment.stop()) - x - (row_height_ > 8 ? 1.0 : 0.0));
    const double y = top + row_height_ * static_cast<double>(segment.machine_worker) + gap;
    const double height = row_height_ - 2 * gap;
    const Colour colour = tile_colour(segment.output_tile);
    const double radius = row_height_ > 12 ? 3 : 0;
    const std::string box =
        fmt::format("x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"{}\"", x, y,
                    width, height, radius);
    add("<rect {} fill=\"{}\"><title>{}: LeanTiles {} to {}, worker {}</title></rect>\n", box,
        colour.hex(), tile_name(segment.tile, map_), segment.lean_tiles.begin,
        segment.lean_tiles.end, segment.worker);
    if (segment.partial) add("<rect {} fill=\"url(#partial)\"/>\n", box);
    if (row_height_ < 14) return;
    const std::string ink = colour.light() ? "#1f2933" : "#ffffff";
    const double mark = segment.finishes && width > 16 ? 16 : 0;
    if (mark > 0) {
      add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4.5\" fill=\"#ffffff\" stroke=\"#1f2933\" "
          "stroke-width=\"1.5\"/>\n",
          x + width - 10, y + height / 2);
    }
    const std::string name = tile_name(segment.tile, map_);
    if (kCharWidth * static_cast<double>(name.size()) + 14 + mark > width) return;
    // A halo in the tile's colour keeps the label readable on stripes.
    add("<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:{};stroke:{};stroke-width:3;"
        "paint-order:stroke;stroke-linejoin:round\">{}</text>\n",
        x + 7, y + height / 2 + 4, ink, colour.hex(), name);
  }

  double axis(double y) {
    const double raw = static_cast<double>(std::max<std::int64_t>(time_end_, 1)) / 8.0;
    const double magnitude = std::pow(10.0, std::floor(std::log10(std::max(raw, 1.0))));
    const double scaled = raw / magnitude;
    const double nice = scaled <= 1 ? 1 : scaled <= 2 ? 2 : scaled <= 5 ? 5 : 10;
    const auto step = static_cast<std::int64_t>(std::max(1.0, nice * magnitude));
    add("<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#9aa5b1\"/>\n", kLeft,
        y, kWidth - kRight);
    for (std::int64_t time = 0; time <= time_end_; time += step) {
      add("<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" "
          "stroke=\"#9aa5b1\"/>\n<text class=\"tick\" text-anchor=\"middle\" x=\"{0:.1f}\" "
          "y=\"{3:.1f}\">{4}</text>\n",
          x_of(time), y, y + 5, y + 19, time);
    }
    add("<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">time in LeanTiles</text>\n",
        kWidth - kRight, y + 36);
    return y + 36;
  }

  double legend(double y) {
    double x = kLeft;
    const auto entry = [&](const std::string& swatch, const std::string& text) {
      const double width = 34 + kCharWidth * static_cast<double>(text.size());
      if (x > kLeft && x + width > kWidth - kRight) {
        x = kLeft;
        y += kLegendLine;
      }
      add("<g transform=\"translate({:.1f} {:.1f})\">{}<text class=\"label\" x=\"24\" "
          "y=\"12\">{}</text></g>\n",
          x, y - 12, swatch, text);
      x += width;
    };
    const std::string box = "<rect width=\"16\" height=\"16\" rx=\"3\" ";
    const std::int64_t tiles = map_.num_output_tiles();
    for (std::int64_t i = 0; i < std::min(tiles, kMaxLegend); ++i) {
      entry(fmt::format("{}fill=\"{}\"/>", box, tile_colour(i).hex()),
            tile_name(map_.tile(i), map_));
    }
    if (tiles > kMaxLegend) entry("", fmt::format("and {} more output tiles", tiles - kMaxLegend));
    x = kLeft;
    y += kLegendLine;
    entry(box + "fill=\"#7b8794\"/>" + box + "fill=\"url(#partial)\"/>", "a partial, to be merged");
    entry(
        "<circle cx=\"8\" cy=\"8\" r=\"4.5\" fill=\"#ffffff\" stroke=\"#1f2933\" "
        "stroke-width=\"1.5\"/>",
        "last LeanTile of a shared output tile");
    entry(box + "fill=\"url(#idle)\" stroke=\"#d5dbe3\"/>", "idle");
    return y + 24;
  }

  std::span<const Schedule> schedules_;
  const TileMap& map_;
  std::int64_t time_end_ = 0;
  std::int64_t num_workers_ = 1;
  double row_height_ = 1;
  std::string body_;
};

}  // namespace

std::string draw_svg(std::span<const Schedule> schedules, const TileMap& map,
                     const std::string& caption, const std::string& command) {
  return Picture(schedules, map).draw(caption, command);
}

}  // namespace leanattn::tools
