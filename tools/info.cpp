// leanattn info: what this build and this machine offer.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "commands.h"
#include "huge_buffer.h"
#include "leanattn/attention.h"
#include "machine_facts.h"
#include "read_bandwidth.h"

namespace leanattn::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  bool json = false;
};

constexpr const char* kFooter =
    R"(Backends are listed best first; "auto" means the first that reads the tensors' memory,
or what LEANATTN_BACKEND names. LEANATTN_ISA names the widest instruction set the cpu backend may use.
The bandwidth is a plain read of memory, the floor of decode attention.

Examples:
  leanattn info
  LEANATTN_ISA=avx2 leanattn info --json)";

constexpr std::string_view kEnvironment[] = {"LEANATTN_BACKEND", "LEANATTN_ISA", "LEANATTN_TUNING"};

struct Measured {
  int num_threads = 1;
  ReadBandwidth read;
};

// Reads a buffer several times the caches, with one thread and with all.
std::vector<Measured> measure(const MachineFacts& facts) {
  constexpr std::int64_t kLeast = std::int64_t{512} << 20;  // bytes
  constexpr std::int64_t kMost = std::int64_t{2} << 30;
  constexpr int kRounds = 5;
  const std::int64_t bytes = std::clamp(2 * facts.last_level_cache_bytes, kLeast, kMost);
  const auto all = static_cast<int>(facts.logical_cores);
  const HugeBuffer buffer(static_cast<std::size_t>(bytes));
  const std::vector<std::byte> pattern(std::size_t{1} << 16, std::byte{1});
  buffer.fill(pattern, all);
  std::vector<Measured> measured{{1, measure_read_bandwidth(buffer.bytes(), 1, kRounds)}};
  if (all > 1) measured.push_back({all, measure_read_bandwidth(buffer.bytes(), all, kRounds)});
  return measured;
}

Json json_of(const MachineFacts& facts, const std::vector<Measured>& measured) {
  const Backend* chosen = &backend();
  Json json = {{"version", LEANATTN_VERSION},
               {"cpu", facts.cpu},
               {"logical_cores", facts.logical_cores},
               {"last_level_cache_bytes", facts.last_level_cache_bytes}};
  for (const Backend* each : backends()) {
    Json row = {{"name", each->name()}, {"default", each == chosen}};
    const std::string unavailable = each->unavailable();
    if (unavailable.empty()) {
      const Machine machine = each->machine();
      row["description"] = machine.description;
      row["num_workers"] = machine.num_workers;
    } else {
      row["unavailable"] = unavailable;
    }
    json["backends"].push_back(std::move(row));
  }
  for (const std::string_view name : kEnvironment) {
    const char* value = std::getenv(name.data());
    json["environment"][std::string(name)] = value == nullptr ? Json(nullptr) : Json(value);
  }
  for (const Measured& each : measured) {
    json["read_bandwidth"].push_back({{"num_threads", each.num_threads},
                                      {"bytes_per_second", each.read.bytes_per_second},
                                      {"way", each.read.way}});
  }
  return json;
}

void print_info(const MachineFacts& facts, const std::vector<Measured>& measured) {
  const Backend* chosen = &backend();
  fmt::print("leanattn {}\n", LEANATTN_VERSION);
  for (const Backend* each : backends()) {
    const std::string unavailable = each->unavailable();
    fmt::print("backend   {}: {}{}\n", each->name(),
               unavailable.empty() ? each->machine().description
                                   : fmt::format("not available: {}", unavailable),
               each == chosen ? " (default)" : "");
  }
  fmt::print("machine   {}, {} logical core{}, last-level cache {:.0f} MB\n", facts.cpu,
             facts.logical_cores, facts.logical_cores == 1 ? "" : "s",
             static_cast<double>(facts.last_level_cache_bytes) / 1e6);
  for (const Measured& each : measured) {
    fmt::print("reading   {:.1f} GB/s with {} thread{} ({})\n", each.read.bytes_per_second / 1e9,
               each.num_threads, each.num_threads == 1 ? "" : "s", each.read.way);
  }
  for (const std::string_view name : kEnvironment) {
    const char* value = std::getenv(name.data());
    fmt::print("{} is {}\n", name, value == nullptr ? "not set" : value);
  }
}

}  // namespace

void add_info(CLI::App& app, Invocation&) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("info", "backends, instruction set, cores, read bandwidth");
  command->footer(kFooter);
  command->add_flag("--json", options->json, "print for a machine");
  command->callback([options] {
    const MachineFacts facts = machine_facts();
    const std::vector<Measured> measured = measure(facts);
    if (options->json) {
      fmt::print("{}\n", json_of(facts, measured).dump(2));
    } else {
      print_info(facts, measured);
    }
  });
}

}  // namespace leanattn::tools
