#include "times.h"

#include <algorithm>
#include <cmath>

namespace leanattn::tools {

Times times_of(std::vector<double> seconds) {
  if (seconds.empty()) return {};
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    return seconds[static_cast<std::size_t>(
        std::lround(share * static_cast<double>(seconds.size() - 1)))];
  };
  return {at(0.5), at(0.1), at(0.9), static_cast<std::int64_t>(seconds.size())};
}

}  // namespace leanattn::tools
