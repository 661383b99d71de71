// What a kernel is told of a call: plain data, passed by value as a launch parameter.
// Strides count elements. Read by host and device code.
#pragma once

#include <cstdint>

#include "cuda/divisor.h"
#include "leanattn/partition.h"
#include "leanattn/tensor.h"
#include "leanattn/visibility.h"

namespace leanattn::cuda {

/// A vector or matrix of int32 or int64 in device memory.
struct Indices {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int32_t shift = 2;  // an entry has 1 << shift bytes
};

/// A floating or bool tensor that the rules read.
template <int kRank>
struct RuleTensor {
  const void* data = nullptr;
  std::int64_t strides[kRank] = {};
  ElementType type = ElementType::kFloat32;
};

/// K or V. Dimensions: page (or cache row), slot, KV head.
struct CacheTensor {
  const void* data = nullptr;
  std::int64_t page_stride = 0;
  std::int64_t slot_stride = 0;
  std::int64_t head_stride = 0;
};

/// q, out or lse. Dimensions: sequence (0 if ragged), query, query head.
struct RowTensor {
  void* data = nullptr;
  std::int64_t sequence_stride = 0;
  std::int64_t query_stride = 0;
  std::int64_t head_stride = 0;
};

/// What a block asks for first comes first: a load of a parameter that lies near another one takes
/// no time once that has been loaded.
struct Call {
  const void* early_lengths = nullptr;  // lengths.data where a LineWindow loads them at once
  Indices lengths;
  std::int32_t num_row_blocks = 0;  // of all sequences: batch · blocks_per_sequence
  std::int32_t window_stride = 0;   // row blocks a lane if a LineWindow holds all; 0: it does not
  std::int32_t window_step = 0;     // from a lane's first to the next lane's; 0: all have the same
  std::int32_t max_kv_len = 0;
  std::int32_t max_q_len = 1;
  PartitionKind kind = PartitionKind::kStreamK;
  KvLayout layout = KvLayout::kContiguous;
  bool reads_early = false;         // Overlap::kCache
  bool fills_device = false;        // nine tenths of the blocks that run at once, or more
  bool one_block_sees_all = false;  // every sequence is one row block, which sees every key
  bool batch_invariant = false;
  bool copies_aligned = true;    // rows of q, K and V begin at multiples of 16 bytes
  bool pages_in_pieces = false;  // where slots of K and V begin, in 16 bytes, takes 32 bits
  bool has_score_rules = false;  // softcap, ALiBi, bias or tree mask
  bool float_out = false;        // out is f32, else of q's type
  Divisor cluster;               // blocks that make a worker
  std::int32_t num_places = 1;   // workers that the launch has at once
  Divisor tile_n;                // keys of a LeanTile
  Divisor num_kv_heads;
  Divisor blocks_per_sequence;
  Divisor num_lines;  // of stream_k, see partition.h
  std::int32_t heads_of_line = 1;
  Divisor shares_of_line;  // workers of a line
  Divisor num_splits;
  Divisor group;  // query heads of a KV head
  Divisor page_size;
  std::uint32_t* claims = nullptr;   // shares claimed, zero between calls; null: none are
  std::int64_t* timeline = nullptr;  // [grid][2] start and end of every block, ns; may be null

  CacheTensor k;
  CacheTensor v;
  Indices cache_rows;
  Indices page_table;  // dense: the table; CSR: the ids
  Indices page_indptr;
  RowTensor q;
  Indices q_offsets;
  Window window;  // bounds below 2^31

  float scale = 1;    // of q·k, natural
  float softcap = 0;  // 0: none
  RowTensor out;
  RowTensor lse;  // data may be null
  RuleTensor<1> sinks;
  std::int32_t num_slices = 1;        // of an output tile's partial
  std::uint32_t* counters = nullptr;  // [workers][slices], zero between calls
  float* partials = nullptr;          // [slots][slices][kSliceFloats]
  RuleTensor<1> alibi;
  RuleTensor<4> bias;
  RuleTensor<3> tree;
};

inline constexpr int kLanes = 32;  // of a warp

/// Row blocks of a lane of a LineWindow, at most.
inline constexpr int kMostOfLane = 4;

/// What makes a call of stream_k, or of the other partitions, one as most decode steps are:
/// take(…) for each condition. Such calls run a kernel that has nothing but what these leave open:
/// its way to the first key is that much shorter.
template <class Take>
LEANATTN_HOST_DEVICE void for_each_common_condition(const Call& call, bool stream_k, Take&& take) {
  take((call.kind == PartitionKind::kStreamK) == stream_k);
  take((call.early_lengths != nullptr) == stream_k);
  if (stream_k) {
    take(call.heads_of_line == 1);
    take(call.window_stride >= 1);
    take(call.window_stride <= kMostOfLane);
    take(call.num_row_blocks <= kMostOfLane * kLanes);
  } else {
    take(call.cluster.value() == 1);
    take(call.claims == nullptr);
  }
  take(call.one_block_sees_all);
  take(call.max_q_len == 1);
  take(call.copies_aligned);
  take(!call.has_score_rules);
  take(!call.batch_invariant);
  take(!call.float_out);
  take(call.q_offsets.data == nullptr);
  take(call.cache_rows.data == nullptr);
  take(call.lse.data == nullptr);
  take(call.sinks.data == nullptr);
  take(call.bias.data == nullptr);
  take(call.tree.data == nullptr);
  take(call.layout == KvLayout::kContiguous || call.pages_in_pieces);
}

/// A partial travels in slices of 32 positions, a position being 4 neighbouring elements
/// of one row of O and that row's state: a warp writes, hands over and merges a slice on
/// its own. Floats of a slice: O [32][4], then (max, sum) [32][2].
inline constexpr int kSliceFloats = 32 * 4 + 32 * 2;

/// Blocks of a cluster, at most.
inline constexpr int kMostClusterBlocks = 8;

/// Slices of the partial of `row_tiles` groups of 8 rows.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr int num_slices_of(int row_tiles, int v_head_dim) {
  return row_tiles * ((8 * v_head_dim / 4 + 31) / 32);
}

}  // namespace leanattn::cuda
