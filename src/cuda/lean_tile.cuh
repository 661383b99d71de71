// The LeanTile of a warp: 16 keys at a time, for all rows of an output tile.
//
//   Sᵀ = K·Qᵀ    keys × rows: K is the A operand, so that 8 rows fill a product; the
//                padded form Q·Kᵀ would need 16
//   P  = 2^(S − max), transposed in registers
//   Oᵀ = Vᵀ·Pᵀ   dims × rows
//
// A lane holds, of Sᵀ and of Oᵀ, the same two rows of every 8: 2·(lane % 4) and the one
// after. So max and sum need no exchange; sums are added up once, at the segment's end,
// and max moves only when a score passes it by more than 2^kSlack (FlashAttention-4
// calls that conditional rescaling).
#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/half.h>

#include <cute/arch/mma_sm80.hpp>

#include "cuda/score_rules.cuh"
#include "cuda/tile_memory.cuh"

namespace leanattn::cuda {

/// What the tensor cores do with an element type.
template <class Element>
struct TensorCore;

template <>
struct TensorCore<cutlass::bfloat16_t> {
  using Product = cute::SM80_16x8x16_F32BF16BF16F32_TN;
  static constexpr float kMaxOffset = 0;
  [[nodiscard]] static __device__ std::uint32_t pack(float low, float high) {
    std::uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  /// Whether one of two elements is infinite or NaN.
  [[nodiscard]] static __device__ bool not_finite(std::uint32_t pair) {
    return (pair & 0x7f80u) == 0x7f80u || (pair & 0x7f800000u) == 0x7f800000u;
  }
};

template <>
struct TensorCore<cutlass::half_t> {
  using Product = cute::SM80_16x8x16_F32F16F16F32_TN;
  // f16 ends at 2^-24: weights are taken relative to 2^-7 of the largest, which leaves
  // 2^-31 of it above the end, and below 2^16 at the top.
  static constexpr float kMaxOffset = 7;
  [[nodiscard]] static __device__ std::uint32_t pack(float low, float high) {
    std::uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  [[nodiscard]] static __device__ bool not_finite(std::uint32_t pair) {
    return (pair & 0x7c00u) == 0x7c00u || (pair & 0x7c000000u) == 0x7c000000u;
  }
};

/// d += a·b
template <class Element>
__device__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                             std::uint32_t b1) {
  TensorCore<Element>::Product::fma(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b0, b1, d[0],
                                    d[1], d[2], d[3]);
}

/// How far, in base 2, a score may pass a row's max before the row is rescaled.
inline constexpr float kSlack = 8;

/// Q of a warp's rows as operands of Sᵀ, in shared memory; of 8 rows the operands are kept in
/// registers.
template <class Element, int kHeadDim, int kRowTiles>
struct QueryTile {
  static constexpr bool kInRegisters = kRowTiles == 1;
  static constexpr int kSteps = kHeadDim / 16;
  using Memory = TileMemory<8 * kRowTiles, kHeadDim>;

  std::uint32_t rQ[kInRegisters ? kSteps + kSteps % 2 : 1][2];
  unsigned sQ = 0;

  /// The pieces of 16 bytes that a lane brings.
  static constexpr int kAllPieces = 8 * kRowTiles * Memory::kPieces;
  static constexpr int kLanePieces = (kAllPieces + kLanes - 1) / kLanes;
  struct Pieces {
    uint4 piece[kLanePieces];
  };

  /// Loads the rows of `part`, zeros past them; with a whole warp.
  [[nodiscard]] __device__ static Pieces load(const Call& call, const Segment& segment,
                                              const RowPart& part) {
    const Range32 all = rows_of(call, segment, part.tile_m);
    const Range32 rows{all.begin + part.first, all.end};
    Pieces pieces;
#pragma unroll
    for (int n = 0; n < kLanePieces; ++n) {
      const int row = (lane_id() + n * kLanes) / Memory::kPieces;
      const int column = (lane_id() + n * kLanes) % Memory::kPieces * 8;
      pieces.piece[n] = uint4{};
      if (row < rows.size()) {
        const QueryPlace place = query_place(call, segment, rows.begin + row);
        const Element* from =
            static_cast<const Element*>(call.q.data) + place.offset(call.q) + column;
        pieces.piece[n] = call.copies_aligned
                              ? *reinterpret_cast<const uint4*>(from)
                              : load_unaligned(reinterpret_cast<const std::uint16_t*>(from));
      }
    }
    return pieces;
  }

  /// Puts what `load` brought into `memory`.
  __device__ static void store(const Pieces& pieces, unsigned memory) {
#pragma unroll
    for (int n = 0; n < kLanePieces; ++n) {
      const int i = lane_id() + n * kLanes;
      if (kAllPieces % kLanes != 0 && i >= kAllPieces) break;
      store_shared_piece(memory + Memory::offset(i / Memory::kPieces, i % Memory::kPieces),
                         pieces.piece[n]);
    }
  }

  /// Takes the rows that `store` put there.
  __device__ void attach(unsigned memory) {
    sQ = memory;
    if constexpr (kInRegisters) {
      // Matrices of B: rows 0–7 of columns 0–7, 8–15, … of two steps.
#pragma unroll
      for (int k = 0; k < kSteps; k += 2) {
        const int piece = min(2 * k + lane_id() / 8, Memory::kPieces - 1);
        std::uint32_t r[4];
        load_matrices(sQ + Memory::offset(lane_id() % 8, piece), r);
        rQ[k][0] = r[0], rQ[k][1] = r[1];
        rQ[k + 1][0] = r[2], rQ[k + 1][1] = r[3];
      }
    }
  }

  /// S[t] += K-operand · Q of rows 8·t …, columns 16·k ….
  __device__ void multiply(float (&S)[kRowTiles][4], const std::uint32_t (&rK)[4], int k) const {
    if constexpr (kInRegisters) {
      multiply_add<Element>(S[0], rK, rQ[k][0], rQ[k][1]);
    } else {
#pragma unroll
      for (int t = 0; t < kRowTiles; t += 2) {
        const int row = (t + lane_id() / 16) * 8 + lane_id() % 8;
        std::uint32_t r[4];
        load_matrices(sQ + Memory::offset(row, 2 * k + lane_id() / 8 % 2), r);
        multiply_add<Element>(S[t], rK, r[0], r[1]);
        multiply_add<Element>(S[t + 1], rK, r[2], r[3]);
      }
    }
  }

 private:
  [[nodiscard]] static __device__ __noinline__ uint4 load_unaligned(const std::uint16_t* from) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = static_cast<std::uint32_t>(from[2 * i]) |
                 static_cast<std::uint32_t>(from[2 * i + 1]) << 16;
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
  }
};

/// The softmax states and Oᵀ of a warp.
template <class Element, int kHeadDim, int kVHeadDim, int kRowTiles>
struct WarpTile {
  static constexpr int kRowGroups = kRowTiles;  // of 8 rows
  static constexpr int kDimTiles = kVHeadDim / 16;
  using KMemory = TileMemory<kChunk, kHeadDim>;
  using VMemory = TileMemory<kChunk, kVHeadDim>;

  float O[kRowTiles][kDimTiles][4];  // dim lane/4 (+8), row 2·(lane % 4) (+1)
  float max[kRowTiles][2];           // the reference of the weights, base 2; −∞: none yet
  float sum[kRowTiles][2];           // over this lane's keys

  __device__ void clear() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        max[t][j] = minus_infinity();
        sum[t][j] = 0;
      }
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) O[t][d][i] = 0;
      }
    }
  }

  /// Takes in keys [first_key, first_key + 16) of the segment, for the rows of `part`.
  __device__ void take(const Call& call, const Segment& segment, const RowPart& part,
                       const QueryTile<Element, kHeadDim, kRowTiles>& queries,
                       const ChunkMemory& chunk, int first_key, float scale_log2) {
    float S[kRowTiles][4] = {};  // key lane/4 (+8), row 2·(lane % 4) (+1)
    scores(S, queries, chunk);
    const bool ruled = needs_rules(call, segment, first_key, part.tile_m);
    if (ruled) {
      apply_rules(call, segment, part, first_key, S);
    } else {
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) S[t][i] *= scale_log2;
      }
    }
    raise_max(S);
    // A weight of 0 hides a key from the product unless its value is NaN or infinite.
    if (ruled && rows_see_different_keys(call) && any_not_finite(chunk)) {
      weigh(S, true);
      accumulate_one_by_one(S, chunk);
      return;
    }
    weigh(S, false);
    accumulate(S, chunk);
  }

  /// Adds up the lanes' sums; every lane then has those of its rows.
  __device__ void finish() {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int step = 4; step < kLanes; step *= 2) {
          sum[t][j] += __shfl_xor_sync(kAllLanes, sum[t][j], step);
        }
        // Only NaN scores so far: not empty, or merging would forget them.
        if (isnan(sum[t][j]) && max[t][j] == minus_infinity()) max[t][j] = 0;
      }
    }
  }

 private:
  __device__ static void scores(float (&S)[kRowTiles][4],
                                const QueryTile<Element, kHeadDim, kRowTiles>& queries,
                                const ChunkMemory& chunk) {
    // Matrices of A: keys 0–7, 8–15 of columns 0–7, then of columns 8–15.
    const unsigned lane_offset = KMemory::row_offset(lane_id() % 16) ^ (lane_id() / 16 * 16u);
    // Of 8 rows, two sums: one product after the other waits for the one before.
    float odd[kRowTiles][4] = {};
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      constexpr int kPanelPieces = KMemory::kPanel / 8;
      std::uint32_t rK[4];
      load_matrices(chunk.k + 2 * k / kPanelPieces * KMemory::kPanelBytes +
                        (lane_offset ^ (2 * k % kPanelPieces * 16u)),
                    rK);
      queries.multiply(kRowTiles == 1 && k % 2 == 1 ? odd : S, rK, k);
    }
    if constexpr (kRowTiles == 1) {
#pragma unroll
      for (int i = 0; i < 4; ++i) S[0][i] += odd[0][i];
    }
  }

  /// Raises the max of rows with a score above it by more than the slack.
  __device__ void raise_max(const float (&S)[kRowTiles][4]) {
    bool above = false;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) above |= S[t][i] > max[t][i % 2] + kSlack;
    }
    if (!__any_sync(kAllLanes, above)) return;
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      float most[2] = {fmaxf(S[t][0], S[t][2]), fmaxf(S[t][1], S[t][3])};
#pragma unroll
      for (int step = 4; step < kLanes; step *= 2) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          most[j] = fmaxf(most[j], __shfl_xor_sync(kAllLanes, most[j], step));
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (!(most[j] > max[t][j] + kSlack)) continue;  // each row by itself, for its bits
        const float raised = most[j] - TensorCore<Element>::kMaxOffset;
        const float factor = exp2_of(max[t][j] - raised);
        max[t][j] = raised;
        sum[t][j] *= factor;
#pragma unroll
        for (int d = 0; d < kDimTiles; ++d) {
          O[t][d][j] *= factor;
          O[t][d][j + 2] *= factor;
        }
      }
    }
  }

  /// S becomes the weights, 0 (or −1 on request) where a key is hidden.
  __device__ void weigh(float (&S)[kRowTiles][4], bool mark_hidden) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool hidden = S[t][i] == minus_infinity();
        const float weight = hidden ? 0.0f : exp2_of(S[t][i] - max[t][i % 2]);
        sum[t][i % 2] += weight;
        S[t][i] = hidden && mark_hidden ? -1.0f : weight;
      }
    }
  }

  __device__ void accumulate(const float (&P)[kRowTiles][4], const ChunkMemory& chunk) {
    std::uint32_t rP[kRowTiles][2];  // keys 2·(lane % 4) (+8), row lane/4
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      cute::SM75_U32x1_MOVM_T::copy(TensorCore<Element>::pack(P[t][0], P[t][1]), rP[t][0]);
      cute::SM75_U32x1_MOVM_T::copy(TensorCore<Element>::pack(P[t][2], P[t][3]), rP[t][1]);
    }
    // Matrices of A: dims 0–7, 8–15 of keys 0–7, then of keys 8–15.
    const int key = lane_id() % 8 + lane_id() / 16 * 8;
    const unsigned lane_offset = VMemory::row_offset(key) ^ (lane_id() / 8 % 2 * 16u);
#pragma unroll
    for (int d = 0; d < kDimTiles; ++d) {
      constexpr int kPanelPieces = VMemory::kPanel / 8;
      std::uint32_t rV[4];
      load_matrices_transposed(chunk.v + 2 * d / kPanelPieces * VMemory::kPanelBytes +
                                   (lane_offset ^ (2 * d % kPanelPieces * 16u)),
                               rV);
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
        multiply_add<Element>(O[t][d], rV, rP[t][0], rP[t][1]);
      }
    }
  }

  [[nodiscard]] static __device__ bool any_not_finite(const ChunkMemory& chunk) {
    bool found = false;
    for (int i = lane_id(); i < kChunk * VMemory::kPieces; i += kLanes) {
      const uint4 piece =
          load_shared_piece(chunk.v + VMemory::offset(i / VMemory::kPieces, i % VMemory::kPieces));
      for (const std::uint32_t pair : {piece.x, piece.y, piece.z, piece.w}) {
        found |= TensorCore<Element>::not_finite(pair);
      }
    }
    return __any_sync(kAllLanes, found);
  }

  /// As `accumulate`, but a key that a row does not see is not multiplied with.
  __device__ void accumulate_one_by_one(const float (&P)[kRowTiles][4], const ChunkMemory& chunk) {
    for (int key = 0; key < kChunk; ++key) {
      const int source = key % 8 * 4 + lane_id() % 4;
#pragma unroll
      for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float low = shuffle(P[t][j], source);
          const float high = shuffle(P[t][j + 2], source);
          const float weight = key < 8 ? low : high;
          if (weight < 0) continue;
#pragma unroll
          for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const std::uint16_t bits = load_shared_half(
                  chunk.v + VMemory::offset(key, 2 * d + half) + lane_id() / 4 * 2);
              O[t][d][j + 2 * half] +=
                  weight * static_cast<float>(reinterpret_cast<const Element&>(bits));
            }
          }
        }
      }
    }
  }
};

}  // namespace leanattn::cuda
