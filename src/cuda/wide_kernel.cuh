// The kernel for many packed rows: prefill, and verification of more tokens than a
// LeanTile of 32 rows holds. The warps of a block have rows of their own and share the
// keys, 64 at a time, of which the next are copied while these are computed with. Segments,
// partials and merging are those of the other kernels; no two warps merge with each other.
#pragma once

#include <new>

#include "cuda/key_rows.cuh"
#include "cuda/merge.cuh"
#include "cuda/wide_tile.cuh"

namespace leanattn::cuda {

/// What the first warp tells the others of a segment.
struct alignas(16) WideNote {
  Segment segment;
  Partners partners;
  bool end = false;  // nothing follows: the other fields mean nothing
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

  static constexpr int kQueries = kStages * kStageBytes;  // [kWarps], offset in bytes
  static constexpr int kNotesAt = kQueries + kWarps * Tile::QMemory::kBytes;
  static constexpr int kRowsAt = kNotesAt + kNotes * static_cast<int>(sizeof(WideNote));
  static constexpr int kLineAt = kRowsAt + kWarps * static_cast<int>(sizeof(WideRows));
  static constexpr int kBytes = kLineAt + static_cast<int>(sizeof(Line) + 15) / 16 * 16;
};

/// Writes down the segment that follows; with a whole warp. Out of line, so that the cursor
/// keeps out of the registers.
static __device__ __noinline__ void note_next(const Call& call, Cursor& cursor, WideNote& note) {
  const bool end = cursor.done();
  if (!end) {
    const Segment segment = cursor.next();
    note.segment = segment;  // all lanes the same
    if (!segment.whole()) {
      note.partners = Partners(call, cursor, segment, static_cast<int>(blockIdx.x));
    }
  }
  note.end = end;
}

/// Brings 64 keys into a stage: of four warps each 16 keys; of eight, half of them K and
/// half V.
template <class Element, int kHeadDim, int kVHeadDim, int kWarps>
class WideLoader {
 public:
  static_assert(kWarps == 4 || kWarps == 8);
  __device__ WideLoader(const Call& call, int warp) : call_(call), warp_(warp) {}

  /// Finds where the keys from `first_key` on lie, before they are needed.
  __device__ void look_up(const Segment& segment, int first_key) {
    page_ = segment.sequence;  // of a contiguous cache: the row
    if (call_.layout == KvLayout::kContiguous) {
      if (call_.cache_rows.data != nullptr) page_ = load_index(call_.cache_rows, page_);
      return;
    }
    const std::int64_t table = call_.layout == KvLayout::kPagedDense
                                   ? page_ * call_.page_table.row_stride
                                   : load_index(call_.page_indptr, page_);
    page_ = load_index(call_.page_table,
                       table + lane_key(segment, first_key) / call_.page_size);
  }

  /// Starts the copies of what was looked up. Keys that are not the segment's become zero.
  __device__ void issue(const Segment& segment, int first_key, std::byte* sK, std::byte* sV) const {
    const int chunk = warp_ % 4;
    if (kWarps == 4 || warp_ < 4) {
      copy<kHeadDim>(segment, first_key, call_.k,
                     sK + chunk * TileMemory<kChunk, kHeadDim>::kBytes);
    }
    if (kWarps == 4 || warp_ >= 4) {
      copy<kVHeadDim>(segment, first_key, call_.v,
                      sV + chunk * TileMemory<kChunk, kVHeadDim>::kBytes);
    }
  }

 private:
  [[nodiscard]] __device__ int chunk_key(int first_key) const {
    return first_key + warp_ % 4 * kChunk;
  }
  /// This lane's key of the warp's 16, or the nearest one that is the segment's.
  [[nodiscard]] __device__ int lane_key(const Segment& segment, int first_key) const {
    return max(segment.keys.begin,
               min(chunk_key(first_key) + lane_id() % kChunk, segment.keys.end - 1));
  }
  /// Offset in elements of `key`, which lies in this lane's page.
  [[nodiscard]] __device__ std::int64_t offset_of(const CacheTensor& cache, int kv_head,
                                                  int key) const {
    const int slot = call_.layout == KvLayout::kContiguous ? key : key % call_.page_size;
    return kv_head * cache.head_stride + page_ * cache.page_stride + slot * cache.slot_stride;
  }

  template <int kDim>
  __device__ void copy(const Segment& segment, int first_key, const CacheTensor& cache,
                       std::byte* to) const {
    using Map = CopyMap<kDim>;
    const int first = chunk_key(first_key);
    const Range32 valid{segment.keys.begin - first, segment.keys.end - first};
    const auto* data = static_cast<const Element*>(cache.data);
    const bool one_page =
        call_.layout == KvLayout::kContiguous || call_.page_size.value() % kChunk == 0;
    if (!call_.copies_aligned) {
      const int row = lane_id() % kChunk;
      const int key = lane_key(segment, first_key);
      if (lane_id() < kChunk) {
        copy_unaligned_row<Element, kDim>(to, data + offset_of(cache, segment.kv_head, key), row,
                                          row >= valid.begin && row < valid.end);
      }
    } else if (one_page) {  // rows are a stride apart
      const Element* mine = data + offset_of(cache, segment.kv_head, first) +
                            Map::row() * cache.slot_stride + Map::column();
      const std::int64_t stride = Map::kRowStep * cache.slot_stride;
      Map::template copy<Element>(to, [&](int step) { return mine + step * stride; }, valid);
    } else {  // every key in a page of its own: the lanes tell each other
      const std::int64_t mine =
          offset_of(cache, segment.kv_head, lane_key(segment, first_key)) ;
      Map::template copy<Element>(
          to,
          [&](int step) {
            return data + Map::column() + shuffle(mine, Map::row() + step * Map::kRowStep);
          },
          valid);
    }
  }

  const Call& call_;
  int warp_;
  int page_ = 0;  // of this lane's key
};

/// Starts the copies of a warp's queries; rows past them become zero.
template <class Element, class QMemory>
__device__ void issue_queries(const Call& call, const Segment& segment, const WideRows& rows,
                              std::byte* sQ, int num_rows) {
  using Copy = cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<cute::uint128_t>;
#pragma unroll 1
  for (int i = lane_id(); i < num_rows * QMemory::kPieces; i += kLanes) {
    const int row = i / QMemory::kPieces;
    const int piece = i - row * QMemory::kPieces;
    const bool real = rows.begin + row < rows.end;
    const QueryPlace place = query_place(call, segment, real ? rows.begin + row : rows.begin);
    const Element* from = static_cast<const Element*>(call.q.data) +
                          (real ? place.offset(call.q) + piece * 8 : 0);
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
  return __ballot_sync(kAllLanes, last);
}

/// The end of a segment, by a warp for its rows: writes the output, or publishes a partial
/// and merges what is then complete.
template <class Element, int kVHeadDim, class Block, class Tile>
__device__ void deliver_rows(const Call& call, const WideNote& note, const WideRows& rows,
                             const Tile& tile, int warp) {
  using Place = PositionPlace<kVHeadDim>;
  static_assert(Tile::kRows / 8 * Place::kSlices <= kLanes);
  if (rows.begin >= rows.end) return;
  const Segment& segment = note.segment;
  const bool whole = segment.whole();
  const int first_slice = warp * (Tile::kRows / 8) * Place::kSlices;
  const int quad = lane_id() % 4;
  const bool odd = quad % 2 == 1;
  // Where the first slice of this warp's rows begins in this worker's partial.
  float* partial = call.partials +
                   (std::int64_t{note.partners.mine} * call.num_slices + first_slice) * kSliceFloats;
#pragma unroll
  for (int g = 0; g < Tile::kRows / 16; ++g) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int packed = rows.begin + 16 * g + 8 * h + lane_id() / 4;
      const bool real = packed < rows.end;
      SoftmaxState state{tile.max[g][h], tile.sum[g][h]};
      const SoftmaxState published = state;
      const OutputPlace place(call, segment, real ? packed : rows.begin);
      const bool empty = state.empty();
      float factor = 1;
      if (call.sinks.data != nullptr) factor = add_sink(state, place.sink);
      factor *= normaliser(state);
      if (whole && real && quad == 0 && call.lse.data != nullptr) {
        static_cast<float*>(call.lse.data)[place.lse] = lse_of(state);
      }
#pragma unroll
      for (int d = 0; d < Tile::kDimTiles; d += 2) {
        // Even lanes take 4 neighbours of tile d, odd ones of tile d + 1.
        const float(&even)[4] = tile.O[g][d];
        const float(&next)[4] = tile.O[g][d + 1];
        const float x = __shfl_xor_sync(kAllLanes, odd ? even[2 * h] : next[2 * h], 1);
        const float y = __shfl_xor_sync(kAllLanes, odd ? even[2 * h + 1] : next[2 * h + 1], 1);
        const float4 o = odd ? float4{x, y, next[2 * h], next[2 * h + 1]}
                             : float4{even[2 * h], even[2 * h + 1], x, y};
        const int dim = 8 * (d + quad % 2) + quad / 2 * 4;
        if (!real) continue;
        if (whole) {
          const float4 out = empty ? float4{}
                                   : float4{o.x * factor, o.y * factor, o.z * factor, o.w * factor};
          store_quad<Element>(call, place.out + dim, out);
        } else {
          const int in_group = lane_id() / 4 * Place::kQuads + dim / 4;
          const int slice = (2 * g + h) * Place::kSlices + in_group / kLanes;
          float* at = partial + slice * kSliceFloats;
          __stcg(reinterpret_cast<float4*>(at) + in_group % kLanes, o);
          __stcg(reinterpret_cast<float2*>(at + 4 * kLanes) + in_group % kLanes,
                 float2{published.max, published.sum});
        }
      }
    }
  }
  if (whole) return;
  if (!call.batch_invariant && call.kind == PartitionKind::kFixedSplit) return;
  const int tile_rows =
      rows_of_block(call, segment.block.q_len, segment.row_block, Block::kTileM).size();
  int num_slices = 0;
  for (int t = 0; t < Tile::kRows / 8; ++t) {
    num_slices += slices_of_rows<kVHeadDim>(warp * (Tile::kRows / 8) + t, tile_rows);
  }
  unsigned complete = arrive_at_slices(
      call.counters + std::int64_t{note.partners.counter} * call.num_slices + first_slice,
      num_slices, segment.ids.size(), segment.tile.size());
#pragma unroll 1
  for (; complete != 0; complete &= complete - 1) {
    const int slice = first_slice + __ffs(static_cast<int>(complete)) - 1;
    const Position position = merge_slice(call, note.partners, slice);
    const Place at(slice, tile_rows);
    if (!at.real) continue;
    const OutputPlace place(call, segment, segment.row_block * Block::kTileM + at.row);
    write_position<Element>(call, place, at.dim, position);
  }
}

template <class Element, int kHeadDim, int kVHeadDim, int kGroups, int kWarps, bool kRuled>
__global__ void __launch_bounds__(kWarps * kLanes, 8 / kWarps)
    wide_kernel(const __grid_constant__ Call call) {
  using Block = WideBlock<Element, kHeadDim, kVHeadDim, kGroups, kWarps, kRuled>;
  using Tile = typename Block::Tile;
  extern __shared__ __align__(1024) std::byte memory[];
  const int warp = warp_id();
  auto* notes = reinterpret_cast<WideNote*>(memory + Block::kNotesAt);
  WideRows& rows = reinterpret_cast<WideRows*>(memory + Block::kRowsAt)[warp];
  Line& line = *reinterpret_cast<Line*>(memory + Block::kLineAt);
  std::byte* sQ = memory + Block::kQueries + warp * Tile::QMemory::kBytes;
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x] = nanoseconds();
  }

  wait_for_call_ahead();
  if (call.kind == PartitionKind::kStreamK && call.num_row_blocks > kLanes) {
    lay_out_line(call, Block::kTileM, line);
  }
  Cursor cursor(call, Block::kTileM, line, static_cast<int>(blockIdx.x));
  const bool maybe_empty_blocks = cursor.maybe_empty_blocks();
  if (warp == 0) note_next(call, cursor, notes[0]);
  __syncthreads();

  const auto tile_begin = [](const Segment& segment) {
    return segment.keys.begin / kWideKeys * kWideKeys;
  };
  WideLoader<Element, kHeadDim, kVHeadDim, kWarps> loader(call, warp);
  std::byte* stage = memory;         // that holds the keys at hand
  std::byte* next_stage = memory + Block::kStageBytes;
  Tile tile;
  const WideNote* note = notes;
  WideNote* next_note = notes + 1;
  if (!note->end) {
    const int key = tile_begin(note->segment);
    loader.look_up(note->segment, key);
    loader.issue(note->segment, key, stage, stage + Block::kKBytes);
    if (key + kWideKeys < note->segment.keys.end) loader.look_up(note->segment, key + kWideKeys);
  }
#pragma unroll 1
  while (!note->end) {
    if (warp == 0) note_next(call, cursor, *next_note);
    // The queries of a warp are read by nobody else.
    __syncwarp();
    rows = WideRows(call, note->segment, Block::kTileM, warp * Tile::kRows, Tile::kRows);
    __syncwarp();
    issue_queries<Element, typename Tile::QMemory>(call, note->segment, rows, sQ, Tile::kRows);
    tile.clear();
#pragma unroll 1
    for (int key = tile_begin(note->segment); key < note->segment.keys.end; key += kWideKeys) {
      cute::cp_async_wait<0>();
      __syncthreads();  // these keys are there, and all have read the ones before
      const bool is_last = key + kWideKeys >= note->segment.keys.end;
      const WideNote* following = is_last ? next_note : note;
      if (!following->end) {
        const int next = is_last ? tile_begin(following->segment) : key + kWideKeys;
        if (is_last) loader.look_up(following->segment, next);
        loader.issue(following->segment, next, next_stage, next_stage + Block::kKBytes);
        if (next + kWideKeys < following->segment.keys.end) {
          loader.look_up(following->segment, next + kWideKeys);
        }
      } else {
        let_next_call_start();
      }
      if (key < rows.some.end && key + kWideKeys > rows.some.begin) {
        tile.take(call, note->segment, rows, sQ, stage, stage + Block::kKBytes, key);
      }
      std::byte* const read = stage;
      stage = next_stage;
      next_stage = read;
    }
    tile.finish();
    deliver_rows<Element, kVHeadDim, Block>(call, *note, rows, tile, warp);
    note = next_note;
    next_note = next_note == notes + Block::kNotes - 1 ? notes : next_note + 1;
  }
  if (maybe_empty_blocks && warp == 0) write_empty_blocks<Element, kVHeadDim>(call, Block::kTileM);
  if (call.timeline != nullptr && threadIdx.x == 0) {
    call.timeline[2 * blockIdx.x + 1] = nanoseconds();
  }
}

}  // namespace leanattn::cuda
