// Cases and results as JSON: every number, and what was measured on.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "measure.h"
#include "sm_timeline.h"

namespace leanattn::bench {

using Json = nlohmann::ordered_json;

/// {"cases": […]}, which peers.py reads: every shape, and the rotation over caches.
[[nodiscard]] Json json_of_cases(std::span<const Case> cases);
/// Command, date, commit and machine; "results" is empty.
[[nodiscard]] Json preamble(const std::string& command);
[[nodiscard]] Json json_of(const Result& result);
[[nodiscard]] Json json_of(const Case& shape, const std::vector<Timeline>& timelines);
/// Replaces `path`, first under another name, so that it is whole at any time.
void write_json(const std::string& path, const Json& json);

}  // namespace leanattn::bench
