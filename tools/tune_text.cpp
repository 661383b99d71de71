// The text of a tuning file; see tune_measure.h.
#include <fmt/format.h>

#include <cmath>

#include "tune_measure.h"

namespace leanattn::tools {
namespace {

bool same_kernel(const TuneCase& a, const TuneCase& b) {
  return a.v_head_dim == b.v_head_dim && a.row_tiles == b.row_tiles;
}

}  // namespace

std::string tuning_text(const std::vector<TuneResult>& results, int compute_capability,
                        const std::string& made_by) {
  std::string text = fmt::format(
      "# {}\n# compute_capability v_head_dim row_tiles max_mb blocks tile_n cluster\n", made_by);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto& [problem, shape, seconds, worst] = results[i];
    const TuneResult* next = i + 1 < results.size() ? &results[i + 1] : nullptr;
    const bool last = next == nullptr || !same_kernel(problem, next->problem);
    if (!last && next->best == shape) continue;
    const double most = last ? 0
                             : std::sqrt(static_cast<double>(problem.megabytes) *
                                         static_cast<double>(next->problem.megabytes));
    text += fmt::format("{} {} {} {} {} {} {}\n", compute_capability, problem.v_head_dim,
                        problem.row_tiles, last ? "*" : fmt::format("{:.0f}", most), shape.blocks,
                        shape.tile_n, shape.cluster);
  }
  return text;
}

}  // namespace leanattn::tools
