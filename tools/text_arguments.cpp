// See text_arguments.h.
#include "text_arguments.h"

#include <charconv>

#include "leanattn/error.h"

namespace leanattn::tools {
namespace {

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::int64_t unit_of(char suffix) {
  switch (suffix) {
    case 'k':
    case 'K': return std::int64_t{1} << 10;
    case 'm':
    case 'M': return std::int64_t{1} << 20;
    case 'g':
    case 'G': return std::int64_t{1} << 30;
    default: return 0;
  }
}

}  // namespace

std::int64_t parse_count(std::string_view option, std::string_view text) {
  std::string_view digits = text;
  std::int64_t unit = 1;
  if (!digits.empty() && unit_of(digits.back()) != 0) {
    unit = unit_of(digits.back());
    digits.remove_suffix(1);
  }
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool read = error == std::errc{} && end == digits.data() + digits.size() && value >= 0;
  check(read && value <= (std::int64_t{1} << 62) / unit, option, " is '", text,
        "'; a whole number is needed, such as 4096 or 4k");
  return value * unit;
}

std::vector<std::int64_t> parse_counts(std::string_view option, std::string_view text) {
  std::vector<std::int64_t> counts;
  for (const std::string_view part : split(text)) counts.push_back(parse_count(option, part));
  return counts;
}

Window parse_window(std::string_view option, std::string_view text) {
  if (text.empty()) return {};
  const auto parts = split(text);
  check(parts.size() == 2, option, " is '", text, "'; LEFT,RIGHT is needed, -1 for no bound");
  const auto bound = [&](std::string_view part) {
    return part == "-1" ? std::int64_t{-1} : parse_count(option, part);
  };
  return {false, bound(parts[0]), bound(parts[1])};
}

PartitionChoice parse_partition(std::string_view option, std::string_view text) {
  for (const auto choice : {PartitionChoice::kAuto, PartitionChoice::kOneTile,
                            PartitionChoice::kFixedSplit, PartitionChoice::kStreamK}) {
    if (name_of(choice) == text) return choice;
  }
  throw InvalidArgument(
      concat(option, " is '", text, "'; auto, one_tile, fixed_split or stream_k is needed"));
}

ElementType parse_element_type(std::string_view option, std::string_view text) {
  for (const auto type : {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}) {
    if (name_of(type) == text) return type;
  }
  throw InvalidArgument(concat(option, " is '", text, "'; f32, f16 or bf16 is needed"));
}

}  // namespace leanattn::tools
