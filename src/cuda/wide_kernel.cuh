// The kernel for many packed rows: prefill, and verification of more tokens than a
// LeanTile of 32 rows holds. The warps of a block have rows of their own and share the
// keys, 64 at a time, of which the next are copied while these are computed with. Segments,
// partials and merging are those of the other kernels; no two warps merge with each other.
#pragma once

#include <cute/arch/copy_sm80.hpp>

#include "cuda/key_rows.cuh"
#include "cuda/merge.cuh"
#include "cuda/wide_tile.cuh"

namespace leanattn::cuda {

/// What the first warp tells the others of a segment.
struct alignas(16) WideNote {
  Segment segment;
  Partners partners;
  Range32 all{};     // keys that every row of the output tile sees
  bool end = false;  // nothing follows: the other fields mean nothing
};

/// What a warp keeps out of its registers.
struct alignas(16) WideWarpNote {
  WideRows rows;
  float2 states[8];  // (max, sum) of 8 rows that are delivered
};

/// A block: its warps, their rows and its shared memory.
template <class Element, int kHeadDim, int kVHeadDim, int kGroups, int kWarps, bool kRuled>
struct WideBlock {
  using Tile = WideTile<Element, kHeadDim, kVHeadDim, kGroups, kRuled>;
  static constexpr int kThreads = kWarps * kLanes;
  static constexpr int kTileM = kWarps * Tile::kRows;
  static constexpr int kKBytes = kWideKeys * kHeadDim * 2;
  static constexpr int kStageBytes = kKBytes + kWideKeys * kVHeadDim * 2;
  static constexpr int kStages = 2;
  static constexpr int kNotes = 3;  // the segment that is being finished, at hand, to come

  /// Offsets in bytes: the stages, the queries of each warp, and what follows.
  [[nodiscard]] static constexpr __host__ __device__ int queries(int warp) {
    return kStages * kStageBytes + warp * Tile::QMemory::kBytes;
  }
  static constexpr int kNotesAt = queries(kWarps);
  static constexpr int kWarpNotesAt = kNotesAt + kNotes * static_cast<int>(sizeof(WideNote));
  static constexpr int kLineAt = kWarpNotesAt + kWarps * static_cast<int>(sizeof(WideWarpNote));
  static constexpr int kBytes = kLineAt + static_cast<int>(sizeof(Line) + 15) / 16 * 16;

  [[nodiscard]] static constexpr __device__ int after(int note) {
    return note + 1 == kNotes ? 0 : note + 1;
  }
};

/// Writes down the segment that follows; with a whole warp. Out of line, so that the cursor
/// keeps out of the registers.
static __device__ __noinline__ void note_next(const Call& call, Cursor& cursor, int tile_m,
                                              WideNote& note) {
  const bool end = cursor.done([&](int worker) {
    return call.claims == nullptr ? worker + call.num_places
                                  : claim_share(call, cursor.num_workers());
  });
  if (!end) {
    const Segment segment = cursor.next();
    note.segment = segment;  // all lanes the same
    note.all = WideRows(call, segment, tile_m, 0, tile_m).all;
    if (!segment.whole()) {
      note.partners = Partners(call, cursor, segment);
    }
  }
  note.end = end;
}

/// Starts the copies of the 64 keys from `key` on, 16 by each of the first four warps, of
/// which a lane's key lies in `page`; returns the page of its key of the next 64. Keys that
/// are not the segment's become zero. Inline, as a function reads the call from memory.
template <class Element, int kHeadDim, int kVHeadDim>
__device__ __forceinline__ int bring_keys(const Call& call, const Segment& segment, int key,
                                          int page, std::byte* stage) {
  const int warp = warp_id();
  if (warp >= kWideKeys / kChunk) return 0;
  const bool contiguous = call.layout == KvLayout::kContiguous;
  KeyCopier<kHeadDim, kVHeadDim, Reuse::kOften> copier(call);
  copier.begin(segment, contiguous ? cache_row(call, segment) : 0);
  const int mine = key + warp * kChunk;
  const auto page_of = [&](int first_key) {  // of this lane's key
    if (contiguous || first_key >= segment.keys.end) return 0;
    return load_index(call.page_table,
                      page_table_row(call, segment) + copier.lane_key(first_key) / call.page_size);
  };
  if (key <= segment.keys.begin) page = page_of(mine);  // the segment's first
  const auto offsets = [&](int first_key) {
    return contiguous ? copier.contiguous_offsets(first_key)
                      : copier.paged_offsets(first_key, page);
  };
  const unsigned sK = shared_address(stage);
  const ChunkMemory to{
      sK + warp * TileMemory<kChunk, kHeadDim>::kBytes,
      sK + kWideKeys * kHeadDim * 2 + warp * TileMemory<kChunk, kVHeadDim>::kBytes};
  const bool apart = contiguous || call.page_size.value() % kChunk == 0;
  if (apart && copier.is_whole(mine, kChunk)) {
    copier.copy_apart(to, copier.pointers(offsets(mine)));
  } else {
    copier.copy(to, mine, offsets(copier.lane_key(mine)));
  }
  return page_of(mine + kWideKeys);
}

/// Starts the copies of a warp's queries; rows past them become zero.
template <class Element, class QMemory>
__device__ void issue_queries(const Call& call, const Segment& segment, const WideRows& rows,
                              std::byte* sQ, int num_rows) {
  using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>;
#pragma unroll 1
  for (int i = lane_id_again(); i < num_rows * QMemory::kPieces; i += kLanes) {
    const int row = i / QMemory::kPieces;
    const int piece = i - row * QMemory::kPieces;
    const bool real = rows.begin + row < rows.end;
    const QueryPlace place = query_place(call, segment, real ? rows.begin + row : rows.begin);
    const Element* from =
        static_cast<const Element*>(call.q.data) + (real ? place.offset(call.q) + piece * 8 : 0);
    std::byte* to = sQ + QMemory::offset(row, piece);
    if (call.copies_aligned) {
      Copy::copy(*reinterpret_cast<const cute::uint128_t*>(from),
                 *reinterpret_cast<cute::uint128_t*>(to), real);
    } else {
#pragma unroll 1
      for (int e = 0; e < 8; ++e) {
        reinterpret_cast<Element*>(to)[e] = real ? from[e] : Element(0.0f);
      }
    }
  }
}

/// Adds `count` to the counters of `num` ≤ 32 slices, after this warp's writes and before
/// its reads that follow. Bit i: that completes `total` of slice i, whose counter is then 0
/// again.
[[nodiscard]] __device__ inline unsigned arrive_at_slices(std::uint32_t* counters, int num,
                                                          int count, int total) {
  __syncwarp();
  bool last = false;
  if (lane_id() < num) {
    std::uint32_t before = 0;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(counters + lane_id()), "r"(count)
                 : "memory");
    last = before + static_cast<std::uint32_t>(count) == static_cast<std::uint32_t>(total);
    if (last) counters[lane_id()] = 0;  // nobody else comes in this call
  }
  const unsigned complete = __ballot_sync(kAllLanes, last);
  __syncwarp();
  return complete;
}

/// `merge_slice` of merge.cuh, but its loads past the last partial are of the last one again:
/// registers that were left unwritten in a branch not taken would count as live in all of the
/// kernel.
[[nodiscard]] __device__ inline Position merge_partials(const Call& call, const Partners& partners,
                                                        int slice) {
  constexpr int kWidth = 4;
  Position merged;
#pragma unroll 1
  for (int first = 0; first < partners.count; first += kWidth) {
    SoftmaxState states[kWidth];
    float4 outs[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int partial = min(first + i, partners.count - 1);
      const int slot =
          partial == 0 ? partners.first : partners.second + (partial - 1) * partners.step;
      const SlicePlace at(call, slot, slice);
      states[i] = at.state();
      outs[i] = at.out();
      if (first + i >= partners.count) states[i] = {};
    }
    float scales[kWidth];
    Position batch;
    batch.state = merge_all(states, scales);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (scales[i] == 0.0f) continue;
      batch.out.x += outs[i].x * scales[i];
      batch.out.y += outs[i].y * scales[i];
      batch.out.z += outs[i].z * scales[i];
      batch.out.w += outs[i].w * scales[i];
    }
    const MergeScales two = merge(merged.state, batch.state);
    const auto add = [&](float left, float right) {
      return (two.left == 0.0f ? 0.0f : left * two.left) +
             (two.right == 0.0f ? 0.0f : right * two.right);
    };
    merged.out = {add(merged.out.x, batch.out.x), add(merged.out.y, batch.out.y),
                  add(merged.out.z, batch.out.z), add(merged.out.w, batch.out.w)};
  }
  return merged;
}

/// Merges and writes the slices first_slice + i whose bit i is set. Out of line: what it
/// loads at once would take the registers of the tile.
template <class Element, int kVHeadDim, int kTileM>
__device__ __noinline__ void merge_slices(const Call& call, const WideNote& note, int first_slice,
                                          unsigned bits, int num_rows) {
#pragma unroll 1
  for (; bits != 0; bits &= bits - 1) {
    const int slice = first_slice + __ffs(static_cast<int>(bits)) - 1;
    const Position position = merge_partials(call, note.partners, slice);
    const PositionPlace<kVHeadDim> at(slice, num_rows);
    if (!at.real) continue;
    const OutputPlace place(call, note.segment, note.segment.row_block * kTileM + at.row);
    write_position<Element>(call, place, at.dim, position);
  }
}

/// Where 8 rows of O lie in a warp's shared memory, so that few of its lanes meet a bank.
template <int kVHeadDim>
[[nodiscard]] __device__ inline int staged_place(int row, int dim) {
  return row * kVHeadDim + (dim / 4 ^ row % 4) * 4 + dim % 4;
}

/// Writes the 8 rows of group `group`, which `staged` and `states` hold, to the output or to
/// the partial.
template <class Element, int kVHeadDim, int kTileM>
__device__ void deliver_group(const Call& call, const WideNote& note, int group, int num_rows,
                              const float* staged, const float2* states) {
  using Place = PositionPlace<kVHeadDim>;
  const int count = slices_of_rows<kVHeadDim>(group, num_rows);
#pragma unroll 1
  for (int i = 0; i < count; ++i) {
    const int slice = group * Place::kSlices + i;
    const Place at(slice, num_rows);
    Position position;
    if (at.real) {
      const int row = at.row - 8 * group;
      position.state = {states[row].x, states[row].y};
      position.out =
          *reinterpret_cast<const float4*>(staged + staged_place<kVHeadDim>(row, at.dim));
    }
    if (!note.segment.whole()) {
      SlicePlace(call, note.partners.mine, slice).store(position);
    } else if (at.real) {
      const OutputPlace place(call, note.segment, note.segment.row_block * kTileM + at.row);
      write_position<Element>(call, place, at.dim, position);
    }
  }
}

/// The end of a segment, by a warp for its rows: writes the output, or publishes a partial
/// and merges what is then complete. `staging` is the memory of the warp's queries.
template <class Element, int kVHeadDim, class Block, class Tile>
__device__ void deliver_rows(const Call& call, const WideNote& note, WideWarpNote& mine,
                             const Tile& tile, float* staging, int warp) {
  using Place = PositionPlace<kVHeadDim>;
  constexpr int kRowTiles = Tile::kRows / 8;
  static_assert(kRowTiles * Place::kSlices <= kLanes);
  static_assert(8 * kVHeadDim * 4 <= Tile::QMemory::kBytes);
  const Segment& segment = note.segment;
  const int num_rows =
      rows_of_block(call, segment.block.q_len, segment.row_block, Block::kTileM).size();
  const int lane = lane_id_again();
#pragma unroll 1
  for (int t = 0; t < kRowTiles; ++t) {
    const int group = warp * kRowTiles + t;
    if (8 * group >= num_rows) break;
    __syncwarp();  // all have read what lay there before
#pragma unroll
    for (int g = 0; g < kRowTiles / 2; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (2 * g + h != t) continue;  // an array in registers takes no index
        if (lane % 4 == 0) mine.states[lane / 4] = {tile.max[g][h], tile.sum[g][h]};
#pragma unroll
        for (int d = 0; d < Tile::kDimTiles; ++d) {
          *reinterpret_cast<float2*>(staging +
                                     staged_place<kVHeadDim>(lane / 4, 8 * d + lane % 4 * 2)) = {
              tile.O[g][d][2 * h], tile.O[g][d][2 * h + 1]};
        }
      }
    }
    __syncwarp();
    deliver_group<Element, kVHeadDim, Block::kTileM>(call, note, group, num_rows, staging,
                                                     mine.states);
  }
  if (segment.whole()) return;
  if (!call.batch_invariant && call.kind == PartitionKind::kFixedSplit) return;
  int num_slices = 0;
  for (int t = 0; t < kRowTiles; ++t) {
    num_slices += slices_of_rows<kVHeadDim>(warp * kRowTiles + t, num_rows);
  }
  if (num_slices == 0) return;
  const int first_slice = warp * kRowTiles * Place::kSlices;
  const unsigned complete = arrive_at_slices(
      call.counters + std::int64_t{note.partners.counter} * call.num_slices + first_slice,
      num_slices, segment.ids.size(), segment.tile.size());
  if (complete != 0) {
    merge_slices<Element, kVHeadDim, Block::kTileM>(call, note, first_slice, complete, num_rows);
  }
}

template <class Element, int kHeadDim, int kVHeadDim, int kGroups, int kWarps, bool kRuled>
__global__ void __launch_bounds__(kWarps* kLanes, 8 / kWarps)
    wide_kernel(const __grid_constant__ Call call) {
  using Block = WideBlock<Element, kHeadDim, kVHeadDim, kGroups, kWarps, kRuled>;
  using Tile = typename Block::Tile;
  extern __shared__ __align__(1024) std::byte memory[];
  const int warp = warp_id();
  auto* notes = reinterpret_cast<WideNote*>(memory + Block::kNotesAt);
  WideWarpNote& mine = reinterpret_cast<WideWarpNote*>(memory + Block::kWarpNotesAt)[warp];
  const WideRows& rows = mine.rows;
  Line& line = *reinterpret_cast<Line*>(memory + Block::kLineAt);
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x] = nanoseconds();
  }

  wait_for_call_ahead();
  if (is_long_line(call)) lay_out_line(call, Block::kTileM, line);
  LineWindow window;
  window.load_early(call);
  Cursor cursor(call, Block::kTileM, line, window, static_cast<int>(blockIdx.x));
  cursor.start();
  const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
  if (warp == 0) note_next(call, cursor, Block::kTileM, notes[0]);
  __syncthreads();

  const auto tile_begin = [](const Segment& segment) {
    return segment.keys.begin / kWideKeys * kWideKeys;
  };
  const auto bring = [&](const Segment& segment, int key, int page, std::byte* to) {
    return bring_keys<Element, kHeadDim, kVHeadDim>(call, segment, key, page, to);
  };
  const auto s_memory = static_cast<unsigned>(__cvta_generic_to_shared(memory));
  Tile tile;
  int stage = 0;  // offset in bytes, of the keys at hand
  int page = 0;
  int slot = 0;  // of the note at hand
  if (!notes[0].end) {
    const Segment& segment = notes[0].segment;
    page = bring(segment, tile_begin(segment), page, memory);
  }
#pragma unroll 1
  for (; !notes[slot].end; slot = Block::after(slot)) {
    const Segment& segment = notes[slot].segment;
    if (warp == 0) note_next(call, cursor, Block::kTileM, notes[Block::after(slot)]);
    __syncwarp();  // the queries of a warp are read by nobody else
    mine.rows = WideRows(call, segment, Block::kTileM, warp * Tile::kRows, Tile::kRows);
    __syncwarp();
    issue_queries<Element, typename Tile::QMemory>(call, segment, rows,
                                                   memory + Block::queries(warp), Tile::kRows);
    tile.clear();
#pragma unroll 1
    for (int key = tile_begin(segment); key < segment.keys.end; key += kWideKeys) {
      cute::cp_async_wait<0>();
      __syncthreads();  // these keys are there, and all have read the ones before
      const int next_stage = Block::kStageBytes - stage;
      const bool last = key + kWideKeys >= segment.keys.end;
      const WideNote& following = notes[last ? Block::after(slot) : slot];
      if (!following.end) {
        const int next = last ? tile_begin(following.segment) : key + kWideKeys;
        page = bring(following.segment, next, page, memory + next_stage);
      } else {
        let_next_call_start();
      }
      const unsigned sK = s_memory + stage;
      const unsigned sV = sK + Block::kKBytes;
      // A weight of 0 hides a key from the product unless its value is NaN or infinite.
      bool careful = false;
      if ((kRuled || key < notes[slot].all.begin || key + kWideKeys > notes[slot].all.end) &&
          rows_see_different_keys(call)) {
        careful = __syncthreads_or(has_not_finite<Element>(sV, Tile::kVPieces)) != 0;
      }
      // Where values that are not finite are hidden, all warps come, also one whose rows see none
      // of the keys: it has a part in that, and to synccheck warps that wait in two places diverge.
      if (careful || (key < rows.some.end && key + kWideKeys > rows.some.begin)) {
        tile.take(call, segment, rows, s_memory + Block::queries(warp), sK, sV, key, careful);
      }
      stage = next_stage;
    }
    tile.finish();
    deliver_rows<Element, kVHeadDim, Block>(call, notes[slot], mine, tile,
                                            reinterpret_cast<float*>(memory + Block::queries(warp)),
                                            warp);
  }
  if (maybe_empty_blocks && warp == 0) write_empty_blocks<Element, kVHeadDim>(call, Block::kTileM);
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x + 1] = nanoseconds();
  }
}

}  // namespace leanattn::cuda
