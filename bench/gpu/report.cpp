// See report.h.
#include "report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

namespace leanattn::bench {
namespace {

double microseconds(double seconds) { return seconds * 1e6; }

double median_of(const Result& result, std::string_view column) {
  if (column == "plain_read") return result.plain_read();
  if (column == "best_read") return result.best_read();
  return result.seconds(column);
}

std::string time_text(double seconds) {
  return seconds > 0 ? fmt::format("{:.2f}", microseconds(seconds)) : "–";
}

std::string ratio_text(double above, double below) {
  return above > 0 && below > 0 ? fmt::format("{:.2f}x", above / below) : "–";
}

void print_why_not(const Result& result) {
  for (const Column& column : result.columns) {
    if (!column.why_not.empty()) fmt::print("    {}: {}\n", column.label, column.why_not);
  }
}

void print_paper_row(const Result& result) {
  const double ours = result.seconds("auto");
  const Column& fixed = result.columns.back();
  fmt::print("{:<34} {:>8.1f} {:>9} | {:>10} {:>7} | {:>10} {:>7} ({} splits)\n", result.shape.name,
             static_cast<double>(result.shape.read_bytes()) / 1e6, time_text(ours),
             time_text(result.seconds("one_tile")), ratio_text(result.seconds("one_tile"), ours),
             time_text(fixed.times.median), ratio_text(fixed.times.median, ours),
             fixed.plan ? fixed.plan->partition.num_splits : 0);
}

void print_ratio(std::string_view label, const Ratios& ratios) {
  if (ratios.count == 0) return;
  fmt::print(
      "  {:<34} {:.3f} geometric, {:.3f} arithmetic mean of {}; {:.3f} ({}) to {:.3f} ({})\n",
      label, ratios.geometric_mean, ratios.arithmetic_mean, ratios.count, ratios.least,
      ratios.least_at, ratios.most, ratios.most_at);
}

void print_goals(std::span<const Result> results, std::string_view column) {
  struct Class {
    const char* name;
    std::int64_t least_bytes, most_bytes;
    int met = 0, count = 0;
  };
  Class classes[] = {{"under 150 MB", 0, 150'000'000},
                     {"to 500 MB", 150'000'000, 500'000'001},
                     {"above", 500'000'001, INT64_MAX}};
  int met = 0;
  int count = 0;
  for (const Result& result : results) {
    const std::optional<double> goal = goal_seconds(result);
    const double seconds = result.seconds(column);
    if (!goal || seconds == 0) continue;
    for (Class& size : classes) {
      const std::int64_t bytes = result.shape.read_bytes();
      if (bytes < size.least_bytes || bytes >= size.most_bytes) continue;
      ++size.count;
      size.met += seconds <= *goal ? 1 : 0;
    }
    ++count;
    met += seconds <= *goal ? 1 : 0;
  }
  if (count == 0) return;
  fmt::print("  goals met by {:<21} {} of {}", column, met, count);
  for (const Class& size : classes) fmt::print("; {} {} of {}", size.name, size.met, size.count);
  fmt::print("\n");
}

void print_speedups(std::string_view title, std::span<const Result> results) {
  if (results.empty()) return;
  fmt::print("{}\n", title);
  print_ratio("one_tile / stream_k", ratios_of(results, "one_tile", "auto"));
  print_ratio("fixed_split / stream_k", ratios_of(results, "fixed_split", "auto"));
}

std::vector<Result> chosen(std::span<const Result> results,
                           const std::function<bool(const Case&)>& is_chosen) {
  std::vector<Result> list;
  std::copy_if(results.begin(), results.end(), std::back_inserter(list),
               [&](const Result& result) { return is_chosen(result.shape); });
  return list;
}

void print_paper_summary(std::span<const Result> results) {
  print_speedups("\nall", results);
  for (const std::int64_t dim : {64, 128}) {
    print_speedups(fmt::format("d{}", dim),
                   chosen(results, [&](const Case& shape) { return shape.head_dim == dim; }));
  }
  constexpr std::int64_t kLongContext = 256 * 1024;
  print_speedups("contexts of 256k", chosen(results, [](const Case& shape) {
                   return shape.longest() == kLongContext;
                 }));
  for (std::int64_t batch = 1; batch <= 16; batch *= 2) {
    print_speedups(fmt::format("batch {}", batch),
                   chosen(results, [&](const Case& shape) { return shape.batch() == batch; }));
  }
}

}  // namespace

std::optional<double> goal_seconds(const Result& result) {
  const double best = result.best_read();
  if (best == 0 || result.shape.q_len != 1) return std::nullopt;
  const std::int64_t bytes = result.shape.read_bytes();
  if (bytes > 500'000'000) return best * 1.03;
  if (bytes >= 150'000'000) return best + 4e-6;
  const bool alone = result.shape.num_kv_heads == 1 && result.shape.batch() == 1;
  return best + (alone ? 5.5e-6 : 3.0e-6);
}

Ratios ratios_of(std::span<const Result> results, std::string_view above, std::string_view below) {
  Ratios ratios;
  double sum_of_logs = 0;
  for (const Result& result : results) {
    const double numerator = median_of(result, above);
    const double denominator = median_of(result, below);
    if (numerator == 0 || denominator == 0) continue;
    const double ratio = numerator / denominator;
    sum_of_logs += std::log(ratio);
    ratios.arithmetic_mean += ratio;
    if (ratios.count == 0 || ratio < ratios.least) {
      ratios.least = ratio;
      ratios.least_at = result.shape.name;
    }
    if (ratios.count == 0 || ratio > ratios.most) {
      ratios.most = ratio;
      ratios.most_at = result.shape.name;
    }
    ++ratios.count;
  }
  if (ratios.count == 0) return ratios;
  ratios.geometric_mean = std::exp(sum_of_logs / static_cast<double>(ratios.count));
  ratios.arithmetic_mean /= static_cast<double>(ratios.count);
  return ratios;
}

void print_header(std::string_view group) {
  if (group == "paper") {
    fmt::print("\n{:<34} {:>8} {:>9} | {:>10} {:>7} | {:>10} {:>7}\n", "case (µs)", "MB",
               "stream_k", "one_tile", "x", "fixed", "x");
    return;
  }
  fmt::print(
      "\n{:<34} {:>8} {:>8} {:>8} | {:>8} {:>7} {:>7} {:>4} | {:>8} {:>7} | {:>9} {:>7} | {:>9} "
      "{:>7}\n",
      "case (µs)", "MB", "best", "plain", "ours", "+best", "/plain", "goal", "overlap", "+best",
      "one_tile", "x", "fixed", "x");
}

void print_row(const Result& result) {
  if (result.shape.group == "paper") {
    print_paper_row(result);
    print_why_not(result);
    return;
  }
  const double best = result.best_read();
  const double plain = result.plain_read();
  const double ours = result.seconds("auto");
  const double overlap = result.seconds("overlap");
  const double one_tile = result.seconds("one_tile");
  const double fixed = result.seconds("fixed_split");
  const auto over_best = [&](double seconds) {
    return seconds > 0 ? fmt::format("{:+.2f}", microseconds(seconds - best)) : "–";
  };
  const std::optional<double> goal = goal_seconds(result);
  fmt::print(
      "{:<34} {:>8.1f} {:>8} {:>8} | {:>8} {:>7} {:>7} {:>4} | {:>8} {:>7} | {:>9} {:>7} | {:>9} "
      "{:>7}\n",
      result.shape.name, static_cast<double>(result.shape.read_bytes()) / 1e6, time_text(best),
      time_text(plain), time_text(ours), over_best(ours),
      ours > 0 ? fmt::format("{:.3f}", ours / plain) : "–",
      !goal || ours == 0 ? "–" : (ours <= *goal ? "yes" : "no"), time_text(overlap),
      over_best(overlap), time_text(one_tile), ratio_text(one_tile, ours), time_text(fixed),
      ratio_text(fixed, ours));
  if (result.shape.q_len > 1 && ours > 0) {
    fmt::print("    {:.1f} TFLOP/s\n", result.shape.flops() / ours / 1e12);
  }
  print_why_not(result);
}

void print_summary(std::string_view group, std::span<const Result> results) {
  if (results.empty()) return;
  if (group == "paper") {
    print_paper_summary(results);
    return;
  }
  fmt::print("\n{}: {} cases\n", group, results.size());
  print_ratio("ours / plain read", ratios_of(results, "auto", "plain_read"));
  print_ratio("ours / best read", ratios_of(results, "auto", "best_read"));
  print_ratio("overlap / plain read", ratios_of(results, "overlap", "plain_read"));
  print_ratio("overlap / best read", ratios_of(results, "overlap", "best_read"));
  print_ratio("one_tile / ours", ratios_of(results, "one_tile", "auto"));
  print_ratio("fixed_split / ours", ratios_of(results, "fixed_split", "auto"));
  if (group != "peers") return;
  print_goals(results, "auto");
  print_goals(results, "overlap");
}

void print_cases(std::span<const Case> cases) {
  for (const Case& shape : cases) {
    fmt::print("{:<9} {:<34} {:>9.1f} MB{}  {}\n", shape.group, shape.name,
               static_cast<double>(shape.read_bytes()) / 1e6, shape.quick ? " quick" : "      ",
               shape.shape_text());
  }
}

}  // namespace leanattn::bench
