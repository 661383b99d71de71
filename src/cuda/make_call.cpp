#include "cuda/make_call.h"

#include <algorithm>

#include "cuda/launch.h"
#include "cuda/timeline.h"
#include "cuda/workspace.h"

namespace leanattn::cuda {
namespace {

template <class Pointer>
RowTensor row_tensor(const TensorView<4, Pointer>& view) {
  return {const_cast<void*>(static_cast<const void*>(view.data)), view.strides[0], view.strides[1],
          view.strides[2]};
}

CacheTensor cache_tensor(const TensorView<4>& view) {
  return {view.data, view.strides[0], view.strides[1], view.strides[2]};
}

Indices indices_of(const IndexView& view) {
  return {view.data, view.row_stride, view.type == IndexType::kInt64 ? 3 : 2};
}

template <int kRank>
RuleTensor<kRank> rule_tensor(const TensorView<kRank>& view) {
  RuleTensor<kRank> tensor;
  tensor.data = view.data;
  tensor.type = view.type;
  std::copy(view.strides.begin(), view.strides.end(), tensor.strides);
  return tensor;
}

/// Whether every row of `view` that a kernel copies begins at a multiple of 16 bytes.
bool rows_aligned(const TensorView<4>& view) {
  constexpr std::uintptr_t kBytes = 16;
  if (reinterpret_cast<std::uintptr_t>(view.data) % kBytes != 0) return false;
  for (int i = 0; i < 3; ++i) {
    if (view.shape[i] > 1 && view.strides[i] * size_of(view.type) % 16 != 0) return false;
  }
  return true;
}

/// Whether every slot of the pages begins below 2^32 times 16 bytes.
bool within_pieces(const TensorView<4>& cache) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 32) - 1;
  const std::int64_t last =
      (cache.shape[0] - 1) * cache.strides[0] + (cache.shape[1] - 1) * cache.strides[1];
  return cache.strides[0] >= 0 && cache.strides[1] >= 0 && last * size_of(cache.type) / 16 <= kMost;
}

/// Of how many row blocks each lane of a warp knows the length, if all together are to be those of
/// the call; 0: that would be too many.
std::int32_t window_stride(const Call& call) {
  const std::int32_t most = call.one_block_sees_all ? kMostOfLane : 1;
  const std::int32_t stride = (call.num_row_blocks - 1) / kLanes + 1;
  return stride <= most ? stride : 0;
}

/// A window whose bounds fit 32 bits: one wider than any cache is none.
Window window_of(const Window& window) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  Window bounded = window;
  if (bounded.left >= kMost) bounded.left = -1;
  if (bounded.right >= kMost) bounded.right = -1;
  return bounded;
}

void set_tensors(Call& call, const Problem& problem, const Arguments& arguments) {
  call.q = row_tensor(arguments.q);
  call.out = row_tensor(arguments.out);
  if (arguments.lse.given()) {
    const MutableTensorView<3>& lse = arguments.lse;
    call.lse = {lse.data, lse.strides[0], lse.strides[1], lse.strides[2]};
  }
  const KvView& kv = arguments.kv;
  call.k = cache_tensor(kv.k);
  call.v = cache_tensor(kv.v);
  call.lengths = indices_of(arguments.lengths);
  if (problem.ragged_q) call.q_offsets = indices_of(arguments.q_offsets);
  call.layout = problem.layout;
  call.page_size = Divisor(static_cast<std::int32_t>(std::max<std::int64_t>(problem.page_size, 1)));
  call.page_table =
      indices_of(problem.layout == KvLayout::kPagedDense ? kv.page_table : kv.page_ids);
  call.page_indptr = indices_of(kv.page_indptr);
  call.cache_rows = indices_of(kv.cache_rows);
  if (problem.has_sinks) call.sinks = rule_tensor(arguments.sinks);
  if (problem.has_alibi) call.alibi = rule_tensor(arguments.alibi_slopes);
  if (problem.has_bias) call.bias = rule_tensor(arguments.bias);
  if (problem.has_tree_mask) call.tree = rule_tensor(arguments.tree_mask);
  call.pages_in_pieces = within_pieces(kv.k) && within_pieces(kv.v);
  call.copies_aligned = rows_aligned(arguments.q) && rows_aligned(kv.k) && rows_aligned(kv.v);
}

}  // namespace

Call make_call(const Plan& plan, const Arguments& arguments, std::span<std::byte> workspace,
               const Stream& stream) {
  const auto int32 = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
  const Problem& problem = plan.problem;
  const Workspace layout = workspace_of(plan);
  Call call;
  set_tensors(call, problem, arguments);
  call.counters = reinterpret_cast<std::uint32_t*>(workspace.data());
  if (layout.counts_claims) call.claims = call.counters + layout.num_counters - 1;
  call.partials = reinterpret_cast<float*>(workspace.data() + layout.partials);
  call.timeline = timeline_for(plan.partition.num_workers * plan.kernel.cluster);
  call.scale = problem.scale();
  call.softcap = problem.rules.softcap;
  call.window = window_of(problem.rules.window);
  call.max_kv_len = int32(problem.max_kv_len);
  call.max_q_len = int32(problem.max_q_len);
  call.group = Divisor(int32(problem.group_size()));
  call.num_kv_heads = Divisor(int32(problem.num_kv_heads));
  call.num_row_blocks = int32(num_row_blocks(problem, plan.kernel));
  call.blocks_per_sequence = Divisor(int32(std::max<std::int64_t>(
      1, ceil_div(problem.packed_rows(problem.max_q_len), plan.kernel.tile_m))));
  call.tile_n = Divisor(int32(plan.tile_n));
  call.num_slices = int32(layout.num_slices);
  const std::int64_t lines = num_lines(plan.partition.order, problem.num_kv_heads);
  call.num_lines = Divisor(int32(lines));
  call.heads_of_line = int32(problem.num_kv_heads / lines);
  call.shares_of_line =
      Divisor(int32(std::max<std::int64_t>(1, plan.partition.num_workers / lines)));
  call.cluster = Divisor(int32(plan.kernel.cluster));
  call.num_places = int32(num_places(plan));
  call.fills_device =
      plan.kernel.cluster == 1 && 10 * num_places(plan) >= 9 * plan.kernel.num_workers;
  call.num_splits = Divisor(int32(plan.partition.num_splits));
  call.kind = plan.partition.kind;
  call.batch_invariant = plan.batch_invariant;
  call.float_out = problem.out_type == ElementType::kFloat32;
  call.has_score_rules =
      problem.rules.softcap > 0 || problem.has_alibi || problem.has_bias || problem.has_tree_mask;
  call.one_block_sees_all = !problem.ragged_q && problem.max_q_len == 1 && call.window.left < 0 &&
                            call.blocks_per_sequence.value() == 1;
  call.window_stride = window_stride(call);
  call.window_step = call.num_row_blocks == 1 ? 0 : call.window_stride;
  if (call.kind == PartitionKind::kStreamK && call.one_block_sees_all && call.window_stride > 0) {
    call.early_lengths = call.lengths.data;
  }
  call.reads_early = stream.overlap == Overlap::kCache;
  return call;
}

}  // namespace leanattn::cuda
