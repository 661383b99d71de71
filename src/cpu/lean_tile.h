// One segment on one thread: the boundary between the engine, which is plain
// C++, and the LeanTile code, which is compiled once per instruction set.
//
// A segment is a run of keys of one output tile, or of the whole output tiles of
// neighbouring KV heads whose keys lie side by side (NHD): reading them block by
// block together follows the order of memory. Its rows are the G query heads
// of a KV head times the queries, packed, so that K and V are read once for all
// of them. Keys are taken in blocks of kBlock cut at multiples of kBlock;
// every row's arithmetic is the same whatever rows stand beside it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "leanattn/problem.h"

namespace leanattn::cpu {

/// Most keys of a block. K and V are read in turns of a block; the longer the turns, the
/// better a processor's prefetchers keep up.
inline constexpr std::int64_t kBlock = 512;
/// Keys of a block that several KV heads read together.
inline constexpr std::int64_t kSharedBlock = 64;
/// Most packed query rows of an output tile, and of the heads that read together.
inline constexpr std::int64_t kMaxRows = 64;
/// Bytes to which rows in scratch are padded: the widest vector.
inline constexpr std::int64_t kVectorBytes = 64;

/// Keys are scored in groups of this many lanes.
inline constexpr std::int64_t kLaneGroup = 8;

/// Rows known beyond a block, to ask for ahead of use.
inline constexpr std::int64_t kRowsAhead = 64;

/// Row addresses of one block and of the first keys after it, by lane. In the first
/// and the last group of lanes, those without a visible key repeat a visible row, so
/// that groups are whole.
struct BlockRows {
  const void* k[kBlock + kRowsAhead];
  const void* v[kBlock + kRowsAhead];
};

/// Memory of one thread, carved from the workspace.
struct Scratch {
  void* q = nullptr;                 // [heads·rows][q_row_bytes] in the order of K's vectors
  float* scores = nullptr;           // [rows][kBlock]
  std::uint16_t* weights = nullptr;  // [rows][kBlock] bf16, for bf16 products with V
  float* out = nullptr;              // [heads·rows][out_row_floats] in the order of V's vectors
  float* max = nullptr;              // [heads·rows] base 2
  float* sum = nullptr;              // [heads·rows]
  void* zero_row = nullptr;          // a row of V that weighs nothing
  BlockRows* rows = nullptr;
};

/// What a segment computes. Offsets are those of the call's tensors.
struct Segment {
  const Problem* problem = nullptr;
  const Arguments* arguments = nullptr;
  Scratch scratch;
  std::int64_t sequence = 0;
  std::int64_t kv_head = 0;
  std::int64_t num_heads = 1;    // KV heads from kv_head on, read together
  std::int64_t head_rows = 0;    // rows of scratch from one of them to the next
  std::int64_t first_query = 0;  // ragged: the sequence's first row of q
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
  Range rows;  // packed rows of the output tile
  Range keys;  // visible keys of the segment
  float scale = 1;
};

/// The code of one instruction set.
struct LeanTileCode {
  /// Computes max, sum and O of every row into scratch, O in natural order.
  void (*segment)(const Segment&);
};

/// Most KV heads that one segment computes together.
[[nodiscard]] constexpr std::int64_t max_shared_heads(const Problem& problem, std::int64_t tile_m) {
  return std::clamp<std::int64_t>(kMaxRows / tile_m, 1, problem.num_kv_heads);
}

/// Bytes of scratch for `problem` with output tiles of `tile_m` rows, and its parts.
[[nodiscard]] std::int64_t scratch_bytes(const Problem& problem, std::int64_t tile_m);
[[nodiscard]] Scratch carve_scratch(const Problem& problem, std::int64_t tile_m, std::byte* memory);

/// Row `dim` elements of 4 bytes, padded to two of the widest vectors.
[[nodiscard]] constexpr std::int64_t padded_floats(std::int64_t dim) {
  return (dim + 31) / 32 * 32;
}

}  // namespace leanattn::cpu
