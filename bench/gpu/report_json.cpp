// See report_json.h.
#include "report_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "handles.h"
#include "machine_facts.h"
#include "report.h"

namespace leanattn::bench {
namespace {

Json json_of(const Times& times) {
  return {{"median_us", times.median * 1e6},
          {"p10_us", times.low * 1e6},
          {"p90_us", times.high * 1e6},
          {"replays", times.count}};
}

Json json_of(const Case& shape) {
  return {{"name", shape.name},
          {"group", shape.group},
          {"lengths", shape.lengths},
          {"q_len", shape.q_len},
          {"num_q_heads", shape.num_q_heads},
          {"num_kv_heads", shape.num_kv_heads},
          {"head_dim", shape.head_dim},
          {"causal", shape.causal},
          {"page_size", shape.page_size},
          {"layout", shape.heads_first ? "hnd" : "nhd"},
          {"batch_invariant", shape.batch_invariant},
          {"type", name_of(shape.type)},
          {"read_bytes", shape.read_bytes()},
          {"quick", shape.quick}};
}

Json json_of(const Column& column, const Result& result) {
  Json json = {{"column", column.label}};
  if (!column.why_not.empty()) json["why_not"] = column.why_not;
  if (!column.plan) return json;
  const Plan& plan = *column.plan;
  json["kernel"] = plan.kernel.name;
  json["partition"] = name_of(plan.partition.kind);
  json["num_workers"] = plan.partition.num_workers;
  json["num_splits"] = plan.partition.num_splits;
  json["tile_m"] = plan.kernel.tile_m;
  json["tile_n"] = plan.tile_n;
  json["head_synchronous"] = plan.partition.order == Order::kHeadSynchronous;
  json["workspace_bytes"] = plan.workspace_bytes;
  json["estimated_us"] = plan.estimated_seconds * 1e6;
  json["why"] = explain(plan);
  json["relative_error"] = std::isfinite(column.error) ? Json(column.error) : Json("nan");
  if (column.times.count == 0) return json;
  json.update(json_of(column.times));
  const double seconds = column.times.median;
  json["bytes_per_second"] = static_cast<double>(result.shape.read_bytes()) / seconds;
  if (result.shape.q_len > 1) json["flops_per_second"] = result.shape.flops() / seconds;
  if (result.best_read() > 0) {
    json["over_best_read_us"] = (seconds - result.best_read()) * 1e6;
    json["of_best_read"] = seconds / result.best_read();
    json["of_plain_read"] = seconds / result.plain_read();
  }
  return json;
}

Json json_of_machine() {
  int device = 0;
  check_cuda(cudaGetDevice(&device));
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device));
  int driver = 0;
  int runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver));
  check_cuda(cudaRuntimeGetVersion(&runtime));
  return {{"gpu", properties.name},
          {"num_sms", device_attribute(cudaDevAttrMultiProcessorCount)},
          {"compute_capability", properties.major * 10 + properties.minor},
          {"sm_clock_khz", device_attribute(cudaDevAttrClockRate)},
          {"memory_clock_khz", device_attribute(cudaDevAttrMemoryClockRate)},
          {"memory_bus_bits", device_attribute(cudaDevAttrGlobalMemoryBusWidth)},
          {"l2_bytes", device_attribute(cudaDevAttrL2CacheSize)},
          {"memory_bytes", properties.totalGlobalMem},
          {"driver_version", driver},
          {"runtime_version", runtime},
          {"cpu", tools::machine_facts().cpu}};
}

std::string commit() {
  const char* given = std::getenv("LEANATTN_COMMIT");
  return given != nullptr && *given != '\0' ? given : tools::source_commit();
}

}  // namespace

Json json_of_cases(std::span<const Case> cases) {
  Json json = {{"cases", Json::array()}};
  for (const Case& shape : cases) {
    Json row = json_of(shape);
    const Rotation rotation = rotation_of(shape, INT64_MAX);
    row["copies"] = rotation.copies;
    row["calls"] = rotation.calls;
    json["cases"].push_back(row);
  }
  return json;
}

Json preamble(const std::string& command) {
  return {{"command", command},           {"date", tools::utc_now()},
          {"commit", commit()},           {"compiler", tools::compiler()},
          {"machine", json_of_machine()}, {"results", Json::array()}};
}

Json json_of(const Result& result) {
  Json json = json_of(result.shape);
  json["copies"] = result.rotation.copies;
  json["calls"] = result.rotation.calls;
  for (const Floor& floor : result.floors) {
    Json row = json_of(floor.times);
    row["bytes_per_second"] = static_cast<double>(result.shape.read_bytes()) / floor.times.median;
    json["reads"][std::string(name_of(floor.way))] = row;
  }
  if (result.best_read() > 0) json["best_read_us"] = result.best_read() * 1e6;
  if (const auto goal = goal_seconds(result)) json["goal_us"] = *goal * 1e6;
  json["columns"] = Json::array();
  for (const Column& column : result.columns) json["columns"].push_back(json_of(column, result));
  return json;
}

Json json_of(const Case& shape, const std::vector<Timeline>& timelines) {
  Json json = json_of(shape);
  for (const Timeline& timeline : timelines) {
    Json row = {{"column", timeline.column.label}};
    if (timeline.measured()) {
      row["blocks"] = timeline.blocks;
      row["places_used"] = timeline.places;
      row["places"] = timeline.machine;
      row["busy_of_used"] = timeline.busy;
      row["busy_of_all"] = timeline.busy_machine;
      row["first_start_to_last_end_us"] = timeline.seconds * 1e6;
      row["clock_step_ns"] = timeline.clock_step * 1e9;
      row["why"] = explain(*timeline.column.plan);
    } else {
      row["why_not"] = timeline.column.why_not;
    }
    json["timelines"].push_back(row);
  }
  return json;
}

void write_json(const std::string& path, const Json& json) {
  const std::string unfinished = path + ".part";
  std::ofstream stream(unfinished, std::ios::trunc);
  stream << json.dump(2) << "\n";
  stream.close();
  check(!stream.fail(), unfinished, " cannot be written");
  std::filesystem::rename(unfinished, path);
}

}  // namespace leanattn::bench
