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
  bool wide = false;  // int64
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

struct Call {
  RowTensor q;
  RowTensor out;
  RowTensor lse;  // data may be null
  CacheTensor k;
  CacheTensor v;

  Indices lengths;
  Indices q_offsets;
  Indices page_table;  // dense: the table; CSR: the ids
  Indices page_indptr;
  Indices cache_rows;

  RuleTensor<1> sinks;
  RuleTensor<1> alibi;
  RuleTensor<4> bias;
  RuleTensor<3> tree;

  std::uint32_t* counters = nullptr;  // [workers][slices], zero between calls
  std::uint32_t* claims = nullptr;    // shares claimed, zero between calls; null: none are
  float* partials = nullptr;          // [slots][slices][kSliceFloats]
  std::int64_t* timeline = nullptr;   // [grid][2] start and end of every block, ns; may be null

  float scale = 1;    // of q·k, natural
  float softcap = 0;  // 0: none
  Window window;      // bounds below 2^31
  KvLayout layout = KvLayout::kContiguous;
  Divisor page_size;
  std::int32_t max_kv_len = 0;
  std::int32_t max_q_len = 1;
  Divisor group;  // query heads of a KV head
  Divisor num_kv_heads;
  std::int32_t num_row_blocks = 0;  // of all sequences: batch · blocks_per_sequence
  Divisor blocks_per_sequence;
  Divisor tile_n;               // keys of a LeanTile
  std::int32_t num_slices = 1;  // of an output tile's partial
  Divisor num_lines;            // of stream_k, see partition.h
  Divisor shares_of_line;       // workers of a line
  Divisor num_splits;
  Divisor cluster;              // blocks that make a worker
  std::int32_t num_places = 1;  // workers that the launch has at once
  PartitionKind kind = PartitionKind::kStreamK;
  bool batch_invariant = false;
  bool float_out = false;           // out is f32, else of q's type
  bool copies_aligned = true;       // rows of q, K and V begin at multiples of 16 bytes
  bool pages_in_pieces = false;     // where slots of K and V begin, in 16 bytes, takes 32 bits
  bool has_score_rules = false;     // softcap, ALiBi, bias or tree mask
  bool reads_early = false;         // Overlap::kCache
  bool fills_device = false;        // nine tenths of the blocks that run at once, or more
  bool one_query_sees_all = false;  // every sequence has one query, which sees every key
};

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
