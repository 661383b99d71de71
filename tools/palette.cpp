// See palette.h.
#include "palette.h"

#include <fmt/format.h>

#include <cmath>

namespace leanattn::tools {
namespace {

constexpr Colour kChosen[] = {
    {0x2f, 0x6d, 0xb5}, {0xf2, 0x9e, 0x38}, {0x3f, 0x9c, 0x6b}, {0xd6, 0x52, 0x4e},
    {0x7d, 0x62, 0xb8}, {0x45, 0xb5, 0xc4}, {0xe3, 0x7f, 0xa8}, {0x9a, 0xa8, 0x3a},
    {0x8a, 0x5f, 0x45}, {0x7f, 0xa7, 0xe0}, {0xf0, 0xc8, 0x5a}, {0x5f, 0x6b, 0x7a},
};
constexpr std::int64_t kNumChosen = std::size(kChosen);

// Hue in degrees, saturation and lightness of [0, 1].
Colour from_hsl(double hue, double saturation, double lightness) {
  const double chroma = (1.0 - std::abs(2.0 * lightness - 1.0)) * saturation;
  const auto channel = [&](double shift) {
    const double k = std::fmod(shift + hue / 30.0, 12.0);
    const double ramp = std::fmax(-1.0, std::fmin(std::fmin(k - 3.0, 9.0 - k), 1.0));
    return static_cast<int>(std::lround(255.0 * (lightness - chroma / 2.0 * ramp)));
  };
  return {channel(0.0), channel(8.0), channel(4.0)};
}

}  // namespace

std::string Colour::hex() const { return fmt::format("#{:02x}{:02x}{:02x}", red, green, blue); }

bool Colour::light() const { return 299 * red + 587 * green + 114 * blue > 150 * 1000; }

Colour tile_colour(std::int64_t index) {
  if (index < kNumChosen) return kChosen[index];
  constexpr double kGoldenAngle = 137.508;  // degrees; consecutive hues lie far apart
  const double hue = std::fmod(static_cast<double>(index) * kGoldenAngle, 360.0);
  return from_hsl(hue, 0.5, index % 2 == 0 ? 0.45 : 0.6);
}

}  // namespace leanattn::tools
