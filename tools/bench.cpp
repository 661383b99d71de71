// leanattn bench: named workloads × partitions, beside a plain read of the same
// bytes in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_measure.h"
#include "commands.h"
#include "leanattn/error.h"
#include "machine_facts.h"
#include "terminal.h"
#include "text_arguments.h"

namespace leanattn::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> workloads;
  std::string filter;
  std::string type = "bf16";
  std::string layout = "auto";
  std::string backend = "auto";
  std::int64_t threads = 0;
  double seconds = 2;
  std::string json;
  bool quick = false;
  bool list = false;
};

constexpr std::string_view kOverhead = "overhead";

constexpr const char* kFooter =
    R"(Calls rotate over so many caches that none finds its keys in the last-level cache
(workloads marked warm use one). Times are medians; ± is half the distance from the
10th to the 90th percentile. The share is that of a plain read of the same bytes
with the same threads, the best of several ways, measured turn by turn with the
partitions. Answers are checked first: against the reference, or against one_tile
where the reference would take too long; exit status 1 if one is wrong.

Examples:
  leanattn bench --list
  leanattn bench --quick
  leanattn bench --workload gqa4_d128 overhead --type f16 --layout hnd --threads 2
  leanattn bench --filter d64 --json d64.json)";

// A workload is asked for by its name, or by a group of names that begin with it.
bool asked_for(const Options& options, const std::string& name, bool quick) {
  if (name.find(options.filter) == std::string::npos) return false;
  if (options.workloads.empty()) return !options.quick || quick;
  return std::any_of(options.workloads.begin(), options.workloads.end(), [&](const auto& asked) {
    return name == asked || name.rfind(asked + "_", 0) == 0;
  });
}

std::vector<Workload> chosen_workloads(const Options& options) {
  std::vector<Workload> chosen;
  const std::vector<Workload> all = all_workloads();
  for (const std::string& asked : options.workloads) {
    const bool known =
        asked == kOverhead || std::any_of(all.begin(), all.end(), [&](const auto& w) {
          return w.name == asked || w.name.rfind(asked + "_", 0) == 0;
        });
    check(known, "--workload is '", asked, "'; leanattn bench --list shows those there are");
  }
  check(options.layout == "auto" || options.layout == "nhd" || options.layout == "hnd",
        "--layout is '", options.layout, "'; allowed are auto, nhd and hnd");
  for (Workload workload : all) {
    if (!asked_for(options, workload.name, workload.quick)) continue;
    if (options.layout == "nhd") workload.order = CacheOrder::kNhd;
    if (options.layout == "hnd") workload.order = CacheOrder::kHnd;
    chosen.push_back(workload);
  }
  return chosen;
}

void print_list() {
  for (const Workload& workload : all_workloads()) {
    fmt::print("{:<22} {}{}{}\n{:<22} {}\n", workload.name, workload.shape_text(),
               workload.warm ? ", warm" : "", workload.quick ? ", quick" : "", "", workload.about);
  }
  fmt::print("{:<22} 1 × 64 keys, 1/1 heads of 128: what a call costs, quick\n", kOverhead);
}

double spread(const Times& times) { return (times.high - times.low) / 2 / times.median; }

std::string duration(double seconds) {
  return seconds < 1e-3 ? fmt::format("{:.1f} µs", seconds * 1e6)
                        : fmt::format("{:.2f} ms", seconds * 1e3);
}

void print_row(std::string_view label, const Times& times, double bytes, const std::string& rest) {
  fmt::print("  {:<16} {:>10} ±{:<4} {:>6.1f} GB/s  {}\n", label, duration(times.median),
             fmt::format("{:.0f}%", 100 * spread(times)), bytes / times.median / 1e9, rest);
}

void print_result(const Result& result) {
  const Workload& workload = result.workload;
  const auto bytes = static_cast<double>(workload.cache_bytes(result.type));
  fmt::print("\n{}: {}, {} {}, {:.1f} MB {}\n", workload.name, workload.shape_text(),
             name_of(result.type), workload.order == CacheOrder::kNhd ? "NHD" : "HND", bytes / 1e6,
             workload.warm ? "warm" : fmt::format("cold ({} caches)", result.copies));
  print_row("read", result.read, bytes, std::string(result.read_way));
  for (const Run& run : result.runs) {
    print_row(run.label, run.times, bytes,
              fmt::format("{:>4.0f}% of reading{}", 100 * result.read.median / run.times.median,
                          run.within ? "" : "   WRONG ANSWER"));
  }
  const Run* stream_k = result.find("stream_k");
  const Run* one_tile = result.find("one_tile");
  const Run* fixed = result.best_fixed_split();
  fmt::print("  stream_k is {:.2f} times one_tile",
             one_tile->times.median / stream_k->times.median);
  if (fixed != nullptr) {
    fmt::print(", {:.2f} times {}", fixed->times.median / stream_k->times.median, fixed->label);
  }
  if (workload.peer_us) {
    fmt::print(", {:.2f} times its peer ({})", *workload.peer_us * 1e-6 / stream_k->times.median,
               workload.about);
  }
  fmt::print("\n");
  if (!result.within()) {
    fmt::print("  answers differ from {} by more than {:.2g} (relative)\n", result.checked_against,
               result.allowed_error);
  }
}

Json json_of(const Times& times) {
  return {{"median_us", times.median * 1e6},
          {"p10_us", times.low * 1e6},
          {"p90_us", times.high * 1e6},
          {"count", times.count}};
}

Json json_of(const Result& result) {
  const Workload& workload = result.workload;
  const auto bytes = static_cast<double>(workload.cache_bytes(result.type));
  Json json = {{"workload", workload.name},
               {"about", workload.about},
               {"shape",
                {{"lengths", workload.lengths},
                 {"q_len", workload.q_len},
                 {"num_q_heads", workload.num_q_heads},
                 {"num_kv_heads", workload.num_kv_heads},
                 {"head_dim", workload.head_dim},
                 {"causal", workload.causal},
                 {"page_size", workload.page_size},
                 {"order", workload.order == CacheOrder::kNhd ? "NHD" : "HND"}}},
               {"type", name_of(result.type)},
               {"cache_bytes", workload.cache_bytes(result.type)},
               {"warm", workload.warm},
               {"caches", result.copies},
               {"checked_against", result.checked_against},
               {"allowed_relative_error", result.allowed_error}};
  json["read"] = json_of(result.read);
  json["read"]["way"] = result.read_way;
  json["read"]["bytes_per_second"] = bytes / result.read.median;
  for (const Run& run : result.runs) {
    Json row = {{"partition", run.label},
                {"kernel", run.plan.kernel.name},
                {"num_workers", run.plan.partition.num_workers},
                {"num_splits", run.plan.partition.num_splits},
                {"tile_n", run.plan.tile_n},
                {"workspace_bytes", run.plan.workspace_bytes},
                {"why", explain(run.plan)}};
    row.update(json_of(run.times));
    row["bytes_per_second"] = bytes / run.times.median;
    row["share_of_read"] = result.read.median / run.times.median;
    row["relative_error"] = run.relative_error;
    row["within"] = run.within;
    json["runs"].push_back(row);
  }
  const double stream_k = result.find("stream_k")->times.median;
  json["stream_k_over_one_tile"] = result.find("one_tile")->times.median / stream_k;
  if (const Run* fixed = result.best_fixed_split()) {
    json["stream_k_over_best_fixed_split"] = fixed->times.median / stream_k;
    json["best_fixed_split"] = fixed->label;
  }
  if (workload.peer_us) {
    json["peer_us"] = *workload.peer_us;
    json["stream_k_over_peer"] = *workload.peer_us * 1e-6 / stream_k;
  }
  return json;
}

Json json_of_overhead(const std::vector<Overhead>& overheads) {
  Json json = {{"workload", kOverhead}, {"about", "1 × 64 keys, one head of 128, warm"}};
  for (const Overhead& overhead : overheads) {
    Json row = {{"call", overhead.label}};
    row.update(json_of(overhead.times));
    json["runs"].push_back(row);
  }
  return json;
}

Json preamble(const Invocation& invocation, const Backend& chosen, const MachineFacts& facts,
              const MeasureOptions& measured) {
  return {{"command", invocation.command_line},
          {"date", utc_now()},
          {"commit", source_commit()},
          {"compiler", compiler()},
          {"machine",
           {{"cpu", facts.cpu},
            {"logical_cores", facts.logical_cores},
            {"last_level_cache_bytes", facts.last_level_cache_bytes}}},
          {"backend", chosen.name()},
          {"backend_description", chosen.machine().description},
          {"num_threads", measured.num_threads},
          {"results", Json::array()}};
}

void run_overhead(const MeasureOptions& measured, ElementType type, Json& json) {
  const std::vector<Overhead> overheads = measure_overhead(measured, type);
  fmt::print("\n{}: 1 × 64 keys, one head of 128, {}, warm\n", kOverhead, name_of(type));
  for (const Overhead& overhead : overheads) {
    fmt::print("  {:<28} {:>8.2f} µs ±{:.0f}%\n", overhead.label, overhead.times.median * 1e6,
               100 * spread(overhead.times));
  }
  json["results"].push_back(json_of_overhead(overheads));
}

void run_bench(const Options& options, Invocation& invocation) {
  const std::vector<Workload> workloads = chosen_workloads(options);
  const bool overhead = asked_for(options, std::string(kOverhead), true);
  check(!workloads.empty() || overhead, "--filter is '", options.filter,
        "'; no workload has that in its name");
  check(options.seconds > 0, "--seconds is ", options.seconds, "; more than 0 is needed");
  const MachineFacts facts = machine_facts();
  const Backend& chosen = backend(options.backend);
  check<Unsupported>(chosen.device_kind() == Device::Kind::kHost, "--backend is ", chosen.name(),
                     ", which reads device memory; leanattn_bench_gpu measures it");
  const ElementType asked_type = parse_element_type("--type", options.type);
  MeasureOptions measured;
  measured.backend = options.backend;
  measured.num_threads = options.threads > 0 ? options.threads : chosen.machine().num_workers;
  measured.seconds = options.quick ? std::min(options.seconds, 0.4) : options.seconds;
  measured.min_rounds = options.quick ? 5 : 7;
  measured.quick = options.quick;

  Json json = preamble(invocation, chosen, facts, measured);
  fmt::print("{}, backend {} ({}), {} thread{}\n", facts.cpu, chosen.name(),
             chosen.machine().description, measured.num_threads,
             measured.num_threads == 1 ? "" : "s");
  const auto type_of = [&](const Workload& w) { return w.type.value_or(asked_type); };
  std::int64_t bytes = 1;
  for (const Workload& w : workloads) {
    const std::int64_t copies = num_copies(w, type_of(w), facts.last_level_cache_bytes);
    bytes = std::max(bytes, buffer_bytes(w, type_of(w), copies));
  }
  Values values(bytes, static_cast<int>(measured.num_threads));
  ProgressBar bar("bench", static_cast<std::int64_t>(workloads.size()) * 100);
  for (std::size_t i = 0; i < workloads.size(); ++i) {
    const Workload& workload = workloads[i];
    const ElementType type = type_of(workload);
    values.set_type(type);
    const auto progress = [&](double done) {
      bar.show(static_cast<std::int64_t>((static_cast<double>(i) + std::min(done, 1.0)) * 100),
               workload.name);
    };
    const std::int64_t copies = num_copies(workload, type, facts.last_level_cache_bytes);
    const Result result = measure(workload, type, copies, values, measured, progress);
    bar.clear();
    print_result(result);
    std::fflush(stdout);
    json["results"].push_back(json_of(result));
    if (!result.within()) invocation.exit_status = 1;
  }
  if (overhead) run_overhead(measured, asked_type, json);
  if (options.json.empty()) return;
  std::ofstream stream(options.json, std::ios::trunc);
  stream << json.dump(2) << "\n";
  stream.close();
  check(!stream.fail(), options.json, " cannot be written");
}

}  // namespace

void add_bench(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "measure the partitions on this machine");
  command->footer(kFooter);
  command->add_option("--workload", options->workloads, "names, or what they begin with");
  command->add_option("--filter", options->filter, "only workloads with this in their name");
  command->add_option("--type", options->type, "bf16, f16 or f32")->capture_default_str();
  command
      ->add_option(
          "--layout", options->layout,
          "nhd: heads of a token side by side; hnd: tokens of a head; auto: the workload's")
      ->capture_default_str();
  command->add_option("--backend", options->backend, "see leanattn info")->capture_default_str();
  command->add_option("--threads", options->threads, "threads (default: the machine's)");
  command->add_option("--seconds", options->seconds, "time for each workload, about")
      ->capture_default_str();
  command->add_option("--json", options->json, "also write everything to this file");
  command->add_flag("--quick", options->quick, "a few workloads, a few seconds");
  command->add_flag("--list", options->list, "show the workloads");
  command->callback([options, &invocation] {
    if (options->list) {
      print_list();
    } else {
      run_bench(*options, invocation);
    }
  });
}

}  // namespace leanattn::tools
