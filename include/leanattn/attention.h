// The public calls: plan once, run many times; or decode in one call. Merging of
// finished results and appending to a cache stand beside them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "leanattn/backend.h"
#include "leanattn/error.h"
#include "leanattn/partition.h"
#include "leanattn/problem.h"
#include "leanattn/stream.h"
#include "leanattn/tensor.h"

namespace leanattn {

enum class PartitionChoice : std::uint8_t { kAuto, kOneTile, kFixedSplit, kStreamK };

/// "auto", "one_tile", "fixed_split" or "stream_k".
[[nodiscard]] std::string_view name_of(PartitionChoice choice);
[[nodiscard]] std::string_view name_of(PartitionKind kind);

struct PlanOptions {
  std::string_view backend = "auto";
  PartitionChoice partition = PartitionChoice::kAuto;
  std::int64_t num_splits =
      0;  // fixed_split: workers per output tile; 0: as many as fill the machine
  std::int64_t num_workers = 0;  // stream_k and auto: workers; 0: the machine's
  std::int64_t num_threads = 0;  // threads of a CPU run; 0: the machine's. CPU only
  bool batch_invariant =
      false;             // a row's bits depend on its own query, keys, values and length only
  bool checked = false;  // device memory: a run reads lengths and page ids back and checks them

  friend bool operator==(const PlanOptions&, const PlanOptions&) = default;
};

/// What a problem needs, decided once. Plain data; valid as long as the process.
struct Plan {
  Problem problem;
  const Backend* backend = nullptr;
  Kernel kernel;
  Partition partition;
  PartitionChoice asked = PartitionChoice::kAuto;
  std::int64_t num_threads = 1;
  std::int64_t tile_n = 1;  // keys of a LeanTile in this plan
  bool batch_invariant = false;
  bool checked = false;
  std::size_t workspace_bytes = 0;
  double estimated_seconds = 0;  // at the maxima; 0 where the partition was given
};

/// Alignment of workspaces, in bytes.
inline constexpr std::size_t kWorkspaceAlignment = 64;

/// Decides kernel, partition, workers and workspace for `problem`. Throws
/// InvalidArgument for numbers that make no sense, Unsupported with the
/// backend's sentence for what it does not compute.
[[nodiscard]] Plan plan(const Problem& problem, const PlanOptions& options = {});

/// One sentence: what `plan` chose, and why.
[[nodiscard]] std::string explain(const Plan& plan);

/// Makes a workspace ready for runs of `plan`, whatever it held before. Once is enough;
/// it is work in `stream`. The CPU needs none.
void initialise(const Plan& plan, std::span<std::byte> workspace, const Stream& stream = {});

/// `initialise` and `run`, for a workspace that may hold anything. Takes less time than both,
/// one after the other.
void run_fresh(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
               const Stream& stream = {});

/// `run_fresh` in memory that is allocated for this run alone, in the order of `stream`; none
/// where the plan needs none.
void run_once(const Plan& plan, const Arguments& arguments, const Stream& stream = {});

/// Computes attention. `workspace` is of the plan's device, has at least
/// plan.workspace_bytes bytes, aligned to kWorkspaceAlignment, and must not be shared
/// by runs at the same time. On a CPU its content does not matter; on a device it was
/// made ready by `initialise`, and by nothing else touched since. Allocates nothing.
/// Same inputs and plan give the same bits. Throws before anything is written if an
/// argument is not as planned.
///
/// On a device the call is work in `stream`, does not wait for it, and can be captured
/// in a graph: lengths, offsets and tables are read when it executes. Contents of
/// device memory are not looked at beforehand unless the plan is `checked`, which waits
/// for the stream: a length above its capacity or max_kv_len, or a page id that is not
/// in the cache, is then refused with the sequence and the value.
void run(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
         const Stream& stream = {});

/// `run` for callers with threads of their own (CPU): call `begin` once, then,
/// after it returned, `work` once for each thread of [0, plan.num_threads), in
/// any order, from any threads, even one after another. Nobody waits for anybody;
/// the output is complete when every call has returned.
void begin(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace);
void work(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
          std::int64_t thread);

/// plan and run in one call, with a workspace of its own.
void decode(const Arguments& arguments, const ScoreRules& rules = {},
            const PlanOptions& options = {}, const Stream& stream = {});

/// Merges two results over disjoint keys of the same queries:
/// out_a, out_b, out: [rows, heads, v_head_dim]; lse_*: [rows, heads], f32, natural log.
/// `out` and `lse` may be the very memory of one input. An empty input (lse −∞, or
/// +∞) changes no bit of the other; its `out` is not read. Host memory.
void merge_states(const TensorView<3>& out_a, const TensorView<2>& lse_a,
                  const TensorView<3>& out_b, const TensorView<2>& lse_b,
                  const MutableTensorView<3>& out, const MutableTensorView<2>& lse);

/// Merges any number of results, in order: outs [parts, rows, heads, v_head_dim],
/// lses [parts, rows, heads]. Host memory.
void merge_states(const TensorView<4>& outs, const TensorView<3>& lses,
                  const MutableTensorView<3>& out, const MutableTensorView<2>& lse);

/// Writes new keys and values at the end of each sequence.
/// k: [batch, new_len, kv_heads, head_dim], v likewise with v_head_dim; ragged:
/// [1, num_new, …] with offsets [batch + 1]. `lengths` [batch] count the keys
/// before the call; the caller adds to them. Types are converted to the cache's.
/// Throws before anything is written if a sequence would outgrow its row or page
/// table, naming it. Host memory.
void append_kv(const TensorView<4>& k, const TensorView<4>& v, const IndexView& offsets,
               const IndexView& lengths, const MutableKvView& cache);

/// The answer in double precision, by the definition, one score at a time; slow.
/// The yardstick of every test. Takes what `run` takes and writes `out` and `lse`.
void reference(const Arguments& arguments, const ScoreRules& rules = {});

}  // namespace leanattn
