// leanattn plan: draws who computes what for a shape.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "schedule_drawing.h"
#include "schedule_model.h"
#include "terminal.h"
#include "text_arguments.h"

namespace leanattn::tools {
namespace {

struct Options {
  std::int64_t batch = 0;
  std::int64_t heads = 2;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 64;
  std::string context = "2560";
  std::int64_t q_len = 1;
  bool causal = false;
  std::string window;
  std::int64_t workers = 5;
  std::string partition = "all";
  std::int64_t splits = 0;
  std::int64_t tile_m = 0;
  std::int64_t tile_n = 0;
  std::string svg;
  bool json = false;
};

constexpr const char* kFooter =
    R"(Every LeanTile takes one unit of time; a worker of the machine is a row. one_tile
and fixed_split may need more workers than there are: they start in order, each
where a worker is free first. Without options, this is the first figure of the
LeanAttention paper: two heads on five workers.

Examples:
  leanattn plan
  leanattn plan --heads 32 --kv-heads 8 --head-dim 128 --context 64k --workers 132
  leanattn plan --context 1000,52000,7000 --partition stream_k
  leanattn plan --heads 3 --context 8k --workers 8 --svg schedule.svg)";

// The paper's LeanTile: 256 keys at head_dim 64, 128 at 128.
std::int64_t paper_tile_n(std::int64_t head_dim) { return head_dim <= 64 ? 256 : 128; }

Shape shape_of(const Options& options) {
  constexpr std::int64_t kMaxTileM = 64;
  Shape shape;
  shape.num_q_heads = options.heads;
  shape.num_kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
  shape.head_dim = shape.v_head_dim = options.head_dim;
  shape.q_len = options.q_len;
  shape.lengths = parse_counts("--context", options.context);
  check(options.batch >= 0, "--batch is ", options.batch, "; 0 or more is needed");
  if (options.batch > 0 && shape.lengths.size() == 1) {
    shape.lengths.resize(static_cast<std::size_t>(options.batch), shape.lengths.front());
  }
  check(options.batch == 0 || static_cast<std::int64_t>(shape.lengths.size()) == options.batch,
        "--batch is ", options.batch, ", but --context has ", shape.lengths.size(),
        " lengths; one for all or one for each is needed");
  shape.window = parse_window("--window", options.window);
  shape.window.causal = options.causal;
  const std::int64_t rows =
      shape.num_q_heads / std::max<std::int64_t>(shape.num_kv_heads, 1) * shape.q_len;
  shape.tile_m = options.tile_m > 0 ? options.tile_m : std::clamp<std::int64_t>(rows, 1, kMaxTileM);
  shape.tile_n = options.tile_n > 0 ? options.tile_n : paper_tile_n(options.head_dim);
  return shape;
}

std::vector<PartitionKind> kinds_of(const Options& options) {
  if (options.partition == "all") {
    return {PartitionKind::kOneTile, PartitionKind::kFixedSplit, PartitionKind::kStreamK};
  }
  switch (parse_partition("--partition", options.partition)) {
    case PartitionChoice::kOneTile: return {PartitionKind::kOneTile};
    case PartitionChoice::kFixedSplit: return {PartitionKind::kFixedSplit};
    case PartitionChoice::kStreamK: return {PartitionKind::kStreamK};
    case PartitionChoice::kAuto: break;
  }
  throw InvalidArgument(
      "--partition is 'auto'; one_tile, fixed_split, stream_k or all can be drawn");
}

std::string caption_of(const Shape& shape, std::int64_t workers) {
  const auto [shortest, longest] = std::minmax_element(shape.lengths.begin(), shape.lengths.end());
  const std::size_t batch = shape.lengths.size();
  std::string keys = fmt::format("{} keys", *longest);
  if (batch > 1 && batch <= 6 && *shortest != *longest) {
    keys = fmt::format("{} keys", fmt::join(shape.lengths, ", "));
  } else if (*shortest != *longest) {
    keys = fmt::format("{} to {} keys", *shortest, *longest);
  }
  return fmt::format(
      "{} sequence{} of {} · {} query and {} KV heads of {} · {} quer{} each · "
      "{} workers · a LeanTile is {} keys",
      batch, batch == 1 ? "" : "s", keys, shape.num_q_heads, shape.num_kv_heads, shape.head_dim,
      shape.q_len, shape.q_len == 1 ? "y" : "ies", workers, shape.tile_n);
}

nlohmann::ordered_json json_of(const Schedule& schedule) {
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  for (const Segment& segment : schedule.segments) {
    segments.push_back({{"machine_worker", segment.machine_worker},
                        {"worker", segment.worker},
                        {"output_tile", segment.output_tile},
                        {"sequence", segment.tile.sequence},
                        {"kv_head", segment.tile.kv_head},
                        {"row_block", segment.tile.row_block},
                        {"lean_tiles", {segment.lean_tiles.begin, segment.lean_tiles.end}},
                        {"start", segment.start},
                        {"stop", segment.stop()},
                        {"partial", segment.partial}});
  }
  return {{"partition", name_of(schedule.partition.kind)},
          {"num_splits", schedule.partition.num_splits},
          {"num_workers", schedule.partition.num_workers},
          {"machine_workers", schedule.num_machine_workers},
          {"lean_tiles", schedule.total},
          {"makespan", schedule.makespan},
          {"balance", schedule.balance()},
          {"num_partials", schedule.num_partials},
          {"workspace_bytes", schedule.workspace_bytes},
          {"segments", segments}};
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << text;
  stream.close();
  check(!stream.fail(), path, " cannot be written");
}

void run_plan(const Options& options, const Invocation& invocation) {
  const Shape shape = shape_of(options);
  const OwnedTileMap owned(shape);
  const TileMap& map = owned.map();
  std::vector<Schedule> schedules;
  std::int64_t time_end = 0;
  for (const PartitionKind kind : kinds_of(options)) {
    const Partition partition = partition_for(kind, map, options.workers, options.splits);
    schedules.push_back(schedule_of(shape, map, partition, options.workers));
    time_end = std::max(time_end, schedules.back().makespan);
  }
  const std::string caption = caption_of(shape, options.workers);
  if (!options.svg.empty()) {
    write_file(options.svg, draw_svg(schedules, map, caption, invocation.command_line));
  }
  if (options.json) {
    nlohmann::ordered_json json = {{"shape", caption}, {"schedules", nlohmann::json::array()}};
    for (const Schedule& schedule : schedules) json["schedules"].push_back(json_of(schedule));
    fmt::print("{}\n", json.dump(2));
    return;
  }
  const TextStyle style{terminal_width(), colours()};
  fmt::print("{}\n\n", caption);
  for (const Schedule& schedule : schedules) {
    fmt::print("{}\n", draw_text(schedule, time_end, style));
  }
  fmt::print("{}", text_legend(map, style));
  if (!options.svg.empty()) fmt::print("wrote {}\n", options.svg);
}

}  // namespace

void add_plan(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("plan", "draw who computes what for a shape");
  command->footer(kFooter);
  command->add_option("--batch", options->batch, "sequences (default: one per length)");
  command->add_option("--heads", options->heads, "query heads")->capture_default_str();
  command->add_option("--kv-heads", options->kv_heads, "key-value heads (default: --heads)");
  command->add_option("--head-dim", options->head_dim, "elements of a head")->capture_default_str();
  command->add_option("--context", options->context, "keys of each sequence: 1000,52000 or 64k")
      ->capture_default_str();
  command->add_option("--q-len", options->q_len, "queries of each sequence")->capture_default_str();
  command->add_flag("--causal", options->causal, "a query sees no later key");
  command->add_option("--window", options->window, "LEFT,RIGHT keys around a query; -1: no bound");
  command->add_option("--workers", options->workers, "workers of the machine")
      ->capture_default_str();
  command->add_option("--partition", options->partition, "one_tile, fixed_split, stream_k or all")
      ->capture_default_str();
  command->add_option(
      "--splits", options->splits,
      "fixed_split: workers per output tile (default: as many as fill the machine)");
  command->add_option("--tile-m", options->tile_m,
                      "packed query rows of an output tile (default: all, at most 64)");
  command->add_option("--tile-n", options->tile_n,
                      "keys of a LeanTile (default: the paper's, 256 at head_dim 64, else 128)");
  command->add_option("--svg", options->svg, "also write the picture to this file");
  command->add_flag("--json", options->json, "print the segments for a machine");
  command->callback([options, &invocation] { run_plan(*options, invocation); });
}

}  // namespace leanattn::tools
