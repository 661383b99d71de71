#include "cpu/engine.h"

#include <algorithm>
#include <atomic>

#include "core/schedule.h"
#include "cpu/isa.h"
#include "cpu/output.h"
#include "leanattn/softmax_state.h"

namespace leanattn::cpu {
namespace {

/// The max, sum and O of an output tile's rows, as a partial holds them.
struct Partial {
  float* max;
  float* sum;
  float* out;  // [tile_m][v_head_dim]
};

/// A call as one thread sees it.
class ThreadOfCall {
 public:
  ThreadOfCall(const Plan& plan, const Arguments& arguments, std::byte* workspace,
               std::int64_t thread)
      : plan_(plan),
        arguments_(arguments),
        layout_(workspace_layout(plan)),
        workspace_(workspace),
        map_(tile_map(plan, workspace)),
        code_(*instruction_set().code()),
        thread_(thread),
        scale_(plan.problem.scale()),
        scratch_(
            carve_scratch(plan.problem, plan.kernel.tile_m,
                          workspace + layout_.scratch +
                              static_cast<std::size_t>(thread) *
                                  aligned(static_cast<std::size_t>(plan.kernel.scratch_bytes)))) {}

  void work() {
    const std::int64_t v_floats = padded_floats(plan_.problem.v_head_dim);
    std::fill_n(static_cast<float*>(scratch_.zero_row), v_floats, 0.0f);
    for (std::int64_t worker = thread_; worker < plan_.partition.num_workers;
         worker = counter(0).fetch_add(1, std::memory_order_relaxed)) {
      run_worker(worker);
    }
    write_empty_blocks();
  }

 private:
  [[nodiscard]] std::atomic_ref<std::int64_t> counter(std::int64_t index) const {
    return std::atomic_ref(reinterpret_cast<std::int64_t*>(workspace_ + layout_.counters)[index]);
  }

  [[nodiscard]] Partial partial(std::int64_t slot) const {
    float* memory =
        reinterpret_cast<float*>(workspace_ + layout_.partials) + slot * partial_floats(plan_);
    const std::int64_t tile_m = plan_.kernel.tile_m;
    return {memory, memory + tile_m, memory + 2 * tile_m};
  }

  /// Row blocks that see no key have no LeanTile, hence no worker; threads share them.
  void write_empty_blocks() const {
    const Range share = even_share(map_.num_row_blocks(), plan_.num_threads, thread_);
    for (std::int64_t block = share.begin; block < share.end; ++block) {
      if (map_.lean_tiles_before[block] != map_.lean_tiles_before[block + 1]) continue;
      const std::int64_t b = last_not_above(map_.first_block, map_.num_sequences, 1, block);
      const SequenceShape shape = sequence_shape(plan_.problem, arguments_, b);
      const Range rows = rows_of_block(plan_, shape, block - map_.first_block[b]);
      for (std::int64_t head = 0; head < plan_.problem.num_kv_heads; ++head) {
        write_rows(plan_, arguments_, shape, b, head, rows, {});
      }
    }
  }

  void run_worker(std::int64_t worker) {
    const Range range = range_of(plan_.partition, map_, worker);
    for (std::int64_t id = range.begin; id < range.end;) {
      const OutputTile tile = map_.tile_of(id);
      const Range ids = intersect(range, tile.lean_tiles);
      const std::int64_t heads = heads_together(tile, {id, range.end});
      if (heads > 1) {
        run_heads(tile, heads);
        id += heads * ids.size();
        continue;
      }
      if (plan_.batch_invariant) {
        run_invariant(tile, ids);
      } else {
        run_segment(worker, tile, ids);
      }
      id = ids.end;
    }
  }

  /// How many KV heads from `tile` on `range` holds whole, if their keys lie side by side
  /// and are best read together; else 1. The cuts between heads are not those of
  /// batch_invariant, which takes none.
  [[nodiscard]] std::int64_t heads_together(const OutputTile& tile, Range range) const {
    const Problem& problem = plan_.problem;
    const KvView& kv = arguments_.kv;
    const std::int64_t blocks =
        map_.first_block[tile.sequence + 1] - map_.first_block[tile.sequence];
    const bool side_by_side =
        kv.k.strides[2] < kv.k.strides[1] && kv.v.strides[2] < kv.v.strides[1];
    if (plan_.batch_invariant || blocks != 1 || !side_by_side ||
        range.begin != tile.lean_tiles.begin) {
      return 1;
    }
    return std::min({max_shared_heads(problem, plan_.kernel.tile_m),
                     problem.num_kv_heads - tile.kv_head, range.size() / tile.lean_tiles.size()});
  }

  /// Whole output tiles of `heads` neighbouring KV heads.
  void run_heads(const OutputTile& first, std::int64_t heads) {
    compute(first, first.lean_tiles, heads);
    OutputTile tile = first;
    for (std::int64_t head = 0; head < heads; ++head) {
      tile.kv_head = first.kv_head + head;
      finish(tile, head);
    }
  }

  /// Computes LeanTiles `ids` of `tile`, and of the heads after it, into scratch, as one
  /// state each.
  void compute(const OutputTile& tile, Range ids, std::int64_t heads = 1) {
    const SequenceShape shape = sequence_shape(plan_.problem, arguments_, tile.sequence);
    const Range rows = rows_of_block(plan_, shape, tile.row_block);
    const Range keys = keys_of_rows(plan_.problem, shape, rows);
    // Ids of the tile begin at its first LeanTile with a visible key.
    const std::int64_t first = lean_tiles_of_keys(keys, plan_.tile_n).begin - tile.lean_tiles.begin;
    Segment segment;
    segment.problem = &plan_.problem;
    segment.arguments = &arguments_;
    segment.scratch = scratch_;
    segment.sequence = tile.sequence;
    segment.kv_head = tile.kv_head;
    segment.num_heads = heads;
    segment.head_rows = plan_.kernel.tile_m;
    segment.first_query = shape.first_query;
    segment.q_len = shape.q_len;
    segment.kv_len = shape.kv_len;
    segment.rows = rows;
    segment.keys =
        intersect(keys, {(first + ids.begin) * plan_.tile_n, (first + ids.end) * plan_.tile_n});
    segment.scale = scale_;
    code_.segment(segment);
  }

  void run_segment(std::int64_t worker, const OutputTile& tile, Range ids) {
    compute(tile, ids);
    if (ids == tile.lean_tiles) {
      finish(tile);
      return;
    }
    publish(slot_of(worker, tile, ids));
    if (arrive_last(tile, ids)) {
      merge_partials(tile);
      finish(tile);
    }
  }

  /// Every LeanTile is a state of its own, so that cuts depend on keys alone.
  void run_invariant(const OutputTile& tile, Range ids) {
    if (tile.lean_tiles.size() == 1) {
      compute(tile, ids);
      finish(tile);
      return;
    }
    for (std::int64_t id = ids.begin; id < ids.end; ++id) {
      compute(tile, {id, id + 1});
      publish(id);
    }
    if (arrive_last(tile, ids)) {
      start_merge();
      for (std::int64_t id = tile.lean_tiles.begin; id < tile.lean_tiles.end; ++id) {
        merge_partial(id);
      }
      finish(tile);
    }
  }

  /// A worker of stream_k has at most two partials: a first segment that begins inside
  /// its output tile, and a last one that ends inside.
  [[nodiscard]] std::int64_t slot_of(std::int64_t worker, const OutputTile& tile, Range ids) const {
    if (plan_.partition.kind != PartitionKind::kStreamK) return worker;
    return 2 * worker + (ids.begin == tile.lean_tiles.begin ? 1 : 0);
  }

  void publish(std::int64_t slot) const {
    const std::int64_t rows = plan_.kernel.tile_m;
    const std::int64_t dim = plan_.problem.v_head_dim;
    const Partial to = partial(slot);
    std::copy_n(scratch_.max, rows, to.max);
    std::copy_n(scratch_.sum, rows, to.sum);
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(scratch_.out + r * padded_floats(dim), dim, to.out + r * dim);
    }
  }

  /// Whether all of the tile's LeanTiles have arrived with these. The counter is the
  /// one of the tile's owner, who owns no other tile that others share.
  [[nodiscard]] bool arrive_last(const OutputTile& tile, Range ids) const {
    if (ids == tile.lean_tiles) return true;
    const std::int64_t owner = worker_of(plan_.partition, map_, tile, tile.lean_tiles.begin);
    const std::int64_t arrived =
        counter(1 + owner).fetch_add(ids.size(), std::memory_order_acq_rel) + ids.size();
    return arrived == tile.lean_tiles.size();
  }

  void merge_partials(const OutputTile& tile) {
    start_merge();
    const std::int64_t owner = worker_of(plan_.partition, map_, tile, tile.lean_tiles.begin);
    const std::int64_t finisher = worker_of(plan_.partition, map_, tile, tile.lean_tiles.end - 1);
    const std::int64_t step = worker_step(plan_.partition, map_.num_kv_heads);
    for (std::int64_t worker = owner; worker <= finisher; worker += step) {
      const Range ids = intersect(range_of(plan_.partition, map_, worker), tile.lean_tiles);
      if (!ids.empty()) merge_partial(slot_of(worker, tile, ids));
    }
  }

  void start_merge() {
    std::fill_n(scratch_.max, plan_.kernel.tile_m, SoftmaxState{}.max);
    std::fill_n(scratch_.sum, plan_.kernel.tile_m, 0.0f);
  }

  /// scratch ← scratch ∘ partial
  void merge_partial(std::int64_t slot) {
    const std::int64_t dim = plan_.problem.v_head_dim;
    const Partial from = partial(slot);
    for (std::int64_t r = 0; r < plan_.kernel.tile_m; ++r) {
      SoftmaxState state{scratch_.max[r], scratch_.sum[r]};
      const MergeScales scales = merge(state, {from.max[r], from.sum[r]});
      scratch_.max[r] = state.max;
      scratch_.sum[r] = state.sum;
      float* out = scratch_.out + r * padded_floats(dim);
      const float* part = from.out + r * dim;
      if (scales.right == 0.0f) continue;
      if (scales.left == 0.0f) {
        for (std::int64_t i = 0; i < dim; ++i) out[i] = part[i] * scales.right;
      } else {
        for (std::int64_t i = 0; i < dim; ++i) {
          out[i] = out[i] * scales.left + part[i] * scales.right;
        }
      }
    }
  }

  /// Writes the output of `tile` from the `head`-th states of scratch.
  void finish(const OutputTile& tile, std::int64_t head = 0) const {
    const std::int64_t first_row = head * plan_.kernel.tile_m;
    const std::int64_t out_floats = padded_floats(plan_.problem.v_head_dim);
    const SequenceShape shape = sequence_shape(plan_.problem, arguments_, tile.sequence);
    write_rows(plan_, arguments_, shape, tile.sequence, tile.kv_head,
               rows_of_block(plan_, shape, tile.row_block),
               {scratch_.max + first_row, scratch_.sum + first_row,
                scratch_.out + first_row * out_floats, out_floats});
  }

  const Plan& plan_;
  const Arguments& arguments_;
  WorkspaceLayout layout_;
  std::byte* workspace_;
  TileMap map_;
  const LeanTileCode& code_;
  std::int64_t thread_;
  float scale_;
  Scratch scratch_;
};

}  // namespace

void begin_call(const Plan& plan, const Arguments& arguments, std::byte* workspace) {
  lay_out(plan, arguments, workspace);
  auto* counters = reinterpret_cast<std::int64_t*>(workspace + workspace_layout(plan).counters);
  counters[0] = plan.num_threads;  // every thread begins with the worker of its number
  std::fill_n(counters + 1, plan.partition.num_workers, std::int64_t{0});
}

void work_on_call(const Plan& plan, const Arguments& arguments, std::byte* workspace,
                  std::int64_t thread) {
  ThreadOfCall(plan, arguments, workspace, thread).work();
}

}  // namespace leanattn::cpu
