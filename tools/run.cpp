// leanattn run: computes the problem in a file and compares with the answer in it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "commands.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "leanattn/half.h"
#include "problem_file.h"
#include "testing/device_mirror.h"
#include "text_arguments.h"

namespace leanattn::tools {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> files;
  std::string layout = "nhd";
  bool causal = false;
  std::string window;
  float softcap = 0;
  std::optional<float> scale;
  std::string backend = "auto";
  std::string partition = "auto";
  std::int64_t workers = 0;
  std::int64_t threads = 0;
  std::int64_t splits = 0;
  bool batch_invariant = false;
  std::string out;
  bool json = false;
};

constexpr const char* kFooter =
    R"(A file holds tensors by these names (d: head_dim, dv: that of v, Hk: KV heads):
  q            [b, m, H, d]            F32, F16 or BF16; with q_offsets [1, total, H, d]
  k, v         [b, capacity, Hk, d]    (--layout hnd: [b, Hk, capacity, d])
optional:
  lengths      [b]                     keys of each sequence (default: the capacity)
  q_offsets    [b + 1]                 sequence i owns queries [i] to [i + 1]
  page_table   [b, width]              then k, v are [pages, page_size, Hk, d]
  page_ids [n], page_indptr [b + 1]    the same as CSR
  cache_rows   [b]                     the cache row of each sequence
  sinks, alibi_slopes [H]; bias [b|1, H|1, m|1, n]; tree_mask [b|1, m, m] BOOL
  out, lse                             the answer to compare with
Without --scale, a "scale" in the file's metadata holds, else 1/sqrt(d).

The answer may differ from `out` by twice what a plain implementation may lose in
these types. Exit status 1 if it differs by more.

Examples:
  leanattn run examples/data/smollm2_135m_layer14.safetensors
  leanattn run capture.safetensors --causal --partition stream_k --workers 7
  leanattn run capture.safetensors --out answer.safetensors --json)";

ScoreRules rules_of(const Options& options, const Safetensors& file) {
  ScoreRules rules;
  rules.scale = options.scale;
  rules.softcap = options.softcap;
  rules.window = parse_window("--window", options.window);
  rules.window.causal = options.causal;
  const auto stored = file.metadata().find("scale");
  if (!rules.scale && stored != file.metadata().end()) {
    char* end = nullptr;
    const float scale = std::strtof(stored->second.c_str(), &end);
    check(end != stored->second.c_str() && *end == '\0' && std::isfinite(scale), file.source(),
          ": the metadata's scale is not a number");
    rules.scale = scale;
  }
  return rules;
}

PlanOptions plan_options_of(const Options& options) {
  PlanOptions planned;
  planned.backend = options.backend;
  planned.partition = parse_partition("--partition", options.partition);
  planned.num_workers = options.workers;
  planned.num_threads = options.threads;
  planned.num_splits = options.splits;
  planned.batch_invariant = options.batch_invariant;
  return planned;
}

Answer answer_in(const ProblemFile& problem) {
  const auto read = [](const StoredTensor& tensor, const auto& shape) {
    check(std::equal(tensor.shape.begin(), tensor.shape.end(), shape.begin(), shape.end()),
          "tensor '", tensor.name, "' is ", describe(tensor),
          "; the shape of the answer is needed");
    const ElementType type = element_type_of(tensor);
    std::vector<double> values(static_cast<std::size_t>(tensor.num_elements()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = load_float(tensor.data, type, static_cast<std::int64_t>(i));
    }
    return values;
  };
  Answer answer;
  answer.out = read(*problem.expected_out(), problem.arguments().out.shape);
  if (problem.expected_lse() != nullptr) {
    answer.lse = read(*problem.expected_lse(), problem.arguments().lse.shape);
  }
  return answer;
}

Difference compare_with_file(const ProblemFile& problem, const ScoreRules& rules) {
  const Arguments& arguments = problem.arguments();
  const Answer got = read_answer(arguments);
  const Answer wanted = answer_in(problem);
  const Answer tolerance =
      tolerance_of(arguments, rules, wanted, element_type_of(*problem.expected_out()),
                   largest_key_norm(arguments), mean_magnitudes(arguments, rules));
  return compare(arguments, got, wanted, tolerance);
}

std::string tolerance_source(const Arguments& arguments) {
  return fmt::format(
      "twice the first-order error of a plain implementation with {} values and {} "
      "output",
      name_of(arguments.kv.v.type), name_of(arguments.out.type));
}

Json json_of(const Plan& plan) {
  return {{"backend", plan.backend->name()},
          {"kernel", plan.kernel.name},
          {"partition", name_of(plan.partition.kind)},
          {"num_splits", plan.partition.num_splits},
          {"num_workers", plan.partition.num_workers},
          {"num_threads", plan.num_threads},
          {"tile_m", plan.kernel.tile_m},
          {"tile_n", plan.tile_n},
          {"workspace_bytes", plan.workspace_bytes},
          {"batch_invariant", plan.batch_invariant},
          {"why", explain(plan)}};
}

void print_report(const ProblemFile& problem, const Plan& plan,
                  const std::optional<Difference>& difference) {
  const Safetensors& file = problem.file();
  fmt::print("{}\n", file.source());
  for (const auto& [key, value] : file.metadata()) fmt::print("  {:<14} {}\n", key, value);
  for (const StoredTensor& tensor : file.tensors()) {
    fmt::print("  {:<14} {}\n", tensor.name, describe(tensor));
  }
  fmt::print("ran  {}, {}, {}\n     {}\n", plan.backend->name(), plan.kernel.name,
             name_of(plan.partition.kind), explain(plan));
  if (!difference) {
    fmt::print("done (the file has no 'out' to compare with)\n");
    return;
  }
  const std::string share = difference->within
                                ? fmt::format("{:.2g}% of the tolerance", 100 * difference->share)
                                : fmt::format("{:.2g} times the tolerance", difference->share);
  fmt::print("{}  {}; {}\n     cosine difference {:.2g}\n     tolerance: {}\n",
             difference->within ? "same" : "OFF ", difference->worst, share,
             difference->cosine_difference, tolerance_source(problem.arguments()));
}

// Computes the answer in the file's memory, or in a copy on a device that is copied back.
Plan run_on_backend(const ProblemFile& problem, const ScoreRules& rules,
                    const PlanOptions& options) {
  const Backend& chosen = backend(options.backend);
  const Arguments& arguments = problem.arguments();
  // The maxima are those of the file, wherever the run reads it.
  Problem posed = problem_of(arguments, rules);
  posed.device.kind = chosen.device_kind();
  Plan plan = leanattn::plan(posed, options);
  const testing::DeviceMirror mirror(chosen, testing::blocks_of(arguments));
  const testing::DeviceMemory workspace(chosen, plan.workspace_bytes);
  initialise(plan, workspace.bytes());
  run(plan, mirror.mirrored(arguments), workspace.bytes());
  mirror.fetch(arguments.out.data);
  mirror.fetch(arguments.lse.data);
  return plan;
}

Json run_file(const std::string& path, const Options& options, Invocation& invocation) {
  const CacheOrder order = options.layout == "hnd" ? CacheOrder::kHnd : CacheOrder::kNhd;
  const ProblemFile problem(Safetensors::read(path), order);
  check(problem.expected_lse() == nullptr || problem.expected_out() != nullptr, path,
        ": 'lse' is given without 'out'");
  const ScoreRules rules = rules_of(options, problem.file());
  const Arguments& arguments = problem.arguments();
  const Plan plan = run_on_backend(problem, rules, plan_options_of(options));

  std::optional<Difference> difference;
  if (problem.expected_out() != nullptr) difference = compare_with_file(problem, rules);
  if (difference && !difference->within) invocation.exit_status = 1;
  if (!options.out.empty()) {
    write_safetensors(options.out, problem.answer(), {{"made_by", invocation.command_line}});
  }
  if (!options.json) {
    print_report(problem, plan, difference);
    return {};
  }
  Json json = {{"file", path}, {"metadata", problem.file().metadata()}, {"plan", json_of(plan)}};
  if (difference) {
    json["comparison"] = {{"within", difference->within},
                          {"share_of_tolerance", difference->share},
                          {"cosine_difference", difference->cosine_difference},
                          {"worst", difference->worst},
                          {"tolerance", tolerance_source(arguments)}};
  }
  return json;
}

void run_files(const Options& options, Invocation& invocation) {
  check(options.out.empty() || options.files.size() == 1, "--out is '", options.out, "', but ",
        options.files.size(), " files are given; one is needed");
  Json all = Json::array();
  for (const std::string& path : options.files) {
    if (!options.json && path != options.files.front()) fmt::print("\n");
    all.push_back(run_file(path, options, invocation));
  }
  if (options.json) fmt::print("{}\n", all.dump(2));
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "compute the problem in a safetensors file");
  command->footer(kFooter);
  command->add_option("FILE", options->files, "safetensors files")->required();
  command->add_option("--layout", options->layout, "order of k and v: nhd or hnd")
      ->check(CLI::IsMember({"nhd", "hnd"}))
      ->capture_default_str();
  command->add_flag("--causal", options->causal, "a query sees no later key");
  command->add_option("--window", options->window, "LEFT,RIGHT keys around a query; -1: no bound");
  command->add_option("--softcap", options->softcap, "score = C·tanh(score / C)");
  command->add_option("--scale", options->scale, "score = SCALE·(q·k)");
  command->add_option("--backend", options->backend, "see leanattn info")->capture_default_str();
  command->add_option("--partition", options->partition, "auto, one_tile, fixed_split or stream_k")
      ->capture_default_str();
  command->add_option("--workers", options->workers,
                      "workers of stream_k (default: the machine's)");
  command->add_option("--threads", options->threads, "threads (default: the machine's)");
  command->add_option("--splits", options->splits,
                      "workers per output tile of fixed_split (default: as fill the machine)");
  command->add_flag("--batch-invariant", options->batch_invariant,
                    "a row's bits depend on its own inputs only");
  command->add_option("--out", options->out, "write out and lse to this safetensors file");
  command->add_flag("--json", options->json, "print for a machine");
  command->callback([options, &invocation] { run_files(*options, invocation); });
}

}  // namespace leanattn::tools
