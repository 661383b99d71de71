// Turns words of the command line into values. What cannot be read is an
// InvalidArgument that names the option.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "leanattn/attention.h"
#include "leanattn/visibility.h"

namespace leanattn::tools {

/// A whole number of [0, 2^62]; "k", "m" and "g" multiply by 1024, 1024² and 1024³.
[[nodiscard]] std::int64_t parse_count(std::string_view option, std::string_view text);

/// Counts separated by commas: "1000,64k".
[[nodiscard]] std::vector<std::int64_t> parse_counts(std::string_view option,
                                                     std::string_view text);

/// "LEFT,RIGHT", −1 for no bound; an empty text is no window. Only bounds are set.
[[nodiscard]] Window parse_window(std::string_view option, std::string_view text);

/// "auto", "one_tile", "fixed_split" or "stream_k".
[[nodiscard]] PartitionChoice parse_partition(std::string_view option, std::string_view text);

/// "f32", "f16" or "bf16".
[[nodiscard]] ElementType parse_element_type(std::string_view option, std::string_view text);

}  // namespace leanattn::tools
