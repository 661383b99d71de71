// Results as text, and what they add up to.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "measure.h"

namespace leanattn::bench {

/// What a call is to take at most, in seconds: of a cache under 150 MB the best read and
/// 3.0 µs (5.5 µs for one sequence of one KV head), up to 500 MB and 4 µs, above 1.03
/// times the best read. None without a read, or where a query is not alone.
[[nodiscard]] std::optional<double> goal_seconds(const Result& result);

/// Geometric and arithmetic mean, and the extremes with the cases they belong to.
struct Ratios {
  double geometric_mean = 0;
  double arithmetic_mean = 0;
  double least = 0;
  double most = 0;
  std::string least_at, most_at;
  std::int64_t count = 0;
};
/// Of medians, column `above` over column `below`, where both were measured. `above` or
/// `below` may be "plain_read" or "best_read".
[[nodiscard]] Ratios ratios_of(std::span<const Result> results, std::string_view above,
                               std::string_view below);

void print_header(std::string_view group);
void print_row(const Result& result);
/// What all results of one group add up to.
void print_summary(std::string_view group, std::span<const Result> results);
void print_cases(std::span<const Case> cases);

}  // namespace leanattn::bench
