// The tile of a warp where an output tile has many rows: 16 or 32 rows of its own against
// 64 keys at a time, in the form of FlashAttention-2 (arXiv 2307.08691).
//
//   S = Q·Kᵀ     rows × keys: Q is the A operand
//   P = 2^(S − max), which stays in registers as the next A operand
//   O = P·V      rows × dims
//
// Of S and of O a lane holds rows lane/4 and lane/4 + 8 of every 16, so the four lanes of a
// quad share a row. Whatever a row undergoes depends on that row alone: max moves by row,
// and tiles of keys begin at multiples of 64 whatever the segment.
#pragma once

#include "cuda/lean_tile.cuh"
#include "cuda/shared_loads.cuh"

namespace leanattn::cuda {

/// Keys that a block takes at a time.
inline constexpr int kWideKeys = 64;

/// `lane_id`, found again at every call: what is made of it then holds no register beyond
/// its use, of which the tile leaves few.
[[nodiscard]] __device__ inline int lane_id_again() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// The rows of a warp, and which keys they see of a segment.
struct WideRows {
  int begin = 0;  // packed rows of the sequence
  int end = 0;
  Range32 some{};  // a range that holds every key that some row sees
  Range32 all{};   // every row sees these

  WideRows() = default;
  /// Rows [first, first + count) of the output tile, as far as there are any.
  __device__ WideRows(const Call& call, const Segment& segment, int tile_m, int first, int count) {
    const Range32 rows = rows_of_block(call, segment.block.q_len, segment.row_block, tile_m);
    begin = min(rows.begin + first, rows.end);
    end = min(begin + count, rows.end);
    if (begin >= end) return;
    const int position = segment.block.kv_len - segment.block.q_len;
    const int first_position = position + begin / call.group;
    const int last_position = position + (end - 1) / call.group;
    const auto seen = [&](int from, int to) {
      return visible_keys(call.window, from, to, segment.block.kv_len);
    };
    some = intersect(seen(first_position, last_position), segment.keys);
    all = intersect(
        intersect(seen(first_position, first_position), seen(last_position, last_position)),
        segment.keys);
  }
};

/// Keys that packed row `row` of the sequence sees of the segment, but for bias and tree mask.
[[nodiscard]] __device__ inline Range32 keys_of_row(const Call& call, const Segment& segment,
                                                    int row) {
  const int position = segment.block.kv_len - segment.block.q_len + row / call.group;
  return intersect(visible_keys(call.window, position, position, segment.block.kv_len),
                   segment.keys);
}

/// Softmax states and O of `kGroups` groups of 16 rows. `kRuled`: a score may be more than
/// scale·(q·k), or the scale is not positive.
template <class Element, int kHeadDim, int kVHeadDim, int kGroups, bool kRuled>
struct WideTile {
  static constexpr int kRows = 16 * kGroups;
  static constexpr int kKeyTiles = kWideKeys / 8;
  static constexpr int kDimTiles = kVHeadDim / 8;
  static constexpr int kChunks = kWideKeys / kChunk;
  static constexpr int kVPieces = kWideKeys * kVHeadDim / 8;  // of 16 bytes
  using QMemory = TileMemory<kRows, kHeadDim>;
  using KMemory = TileMemory<kChunk, kHeadDim>;  // K and V lie in chunks of 16 keys
  using VMemory = TileMemory<kChunk, kVHeadDim>;
  using ScoreTile = float[kGroups][kKeyTiles][4];  // row lane/4 (+8), key 2·(lane % 4) (+1)

  float O[kGroups][kDimTiles][4];  // row lane/4 (+8), dim 2·(lane % 4) (+1)
  float max[kGroups][2];           // the reference of the weights, base 2; −∞: none yet
  float sum[kGroups][2];           // over this lane's keys

  __device__ void clear() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        max[g][h] = minus_infinity();
        sum[g][h] = 0;
      }
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
        for (int i = 0; i < 4; ++i) O[g][d][i] = 0;
      }
    }
  }

  /// Takes in keys [first_key, first_key + 64). `careful`: V has elements that are NaN or
  /// infinite, and some row does not see them all; then it hides them, with all warps of the
  /// block.
  __device__ void take(const Call& call, const Segment& segment, const WideRows& rows, unsigned sQ,
                       unsigned sK, unsigned sV, int first_key, bool careful) {
    ScoreTile S;
    multiply_keys(S, sQ, sK);
    if (kRuled || first_key < rows.all.begin || first_key + kWideKeys > rows.all.end) {
      apply(call, segment, rows, first_key, S);
    }
    const float factor = kRuled ? 1.0f : call.scale * kLog2E;  // S becomes base 2
    raise_max(S, factor);
    if (careful) {
      add_not_finite(S, sV);
      hide_not_finite<Element>(sV, kVPieces);
    }
    weigh(S, factor);
    accumulate(S, sV);
  }

  /// Adds up the sums of each quad.
  __device__ void finish() {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sum[g][h] += __shfl_xor_sync(kAllLanes, sum[g][h], 1);
        sum[g][h] += __shfl_xor_sync(kAllLanes, sum[g][h], 2);
        // Only NaN scores so far: not empty, or merging would forget them.
        if (isnan(sum[g][h]) && max[g][h] == minus_infinity()) max[g][h] = 0;
      }
    }
  }

 private:
  __device__ static void multiply_keys(ScoreTile& S, unsigned sQ, unsigned sK) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) S[g][n][i] = 0;
      }
    }
    // Matrices of A: rows 0–7, 8–15 of columns 0–7, then of columns 8–15; of B: keys 0–7 of
    // columns 0–7, 8–15, then keys 8–15.
    const int lane = lane_id_again();
    const unsigned q_lane = sQ + (QMemory::row_offset(lane % 16) ^ (lane / 16 * 16u));
    const unsigned k_lane =
        sK + (KMemory::row_offset(lane / 16 * 8 + lane % 8) ^ (lane / 8 % 2 * 16u));
    constexpr int kPanelPieces = KMemory::kPanel / 8;
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const unsigned piece = 2 * k % kPanelPieces * 16u;
      constexpr int kGroupBytes = 16 * QMemory::kPanel * 2;
      std::uint32_t rQ[kGroups][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        load_matrices(
            (q_lane ^ piece) + 2 * k / kPanelPieces * QMemory::kPanelBytes + g * kGroupBytes,
            rQ[g]);
      }
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        std::uint32_t rK[4];
        load_matrices(
            (k_lane ^ piece) + c * KMemory::kBytes + 2 * k / kPanelPieces * KMemory::kPanelBytes,
            rK);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply_add<Element>(S[g][2 * c], rQ[g], rK[0], rK[1]);
          multiply_add<Element>(S[g][2 * c + 1], rQ[g], rK[2], rK[3]);
        }
      }
    }
  }

  /// Hides keys; of ruled tiles, makes the scores.
  __device__ static void apply(const Call& call, const Segment& segment, const WideRows& rows,
                               int first_key, ScoreTile& S) {
    const int lane = lane_id_again();
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int packed = rows.begin + 16 * g + 8 * h + lane / 4;
        Range32 keys{};
        if (packed < rows.end) keys = keys_of_row(call, segment, packed);
        RowRules row;
        if constexpr (kRuled) {
          row.query = packed / call.group;
          row.q_head =
              segment.kv_head * call.group.value() + packed - row.query * call.group.value();
          row.position = segment.block.kv_len - segment.block.q_len + row.query;
          if (call.alibi.data != nullptr && packed < rows.end) {
            row.slope =
                load_element(call.alibi.data, call.alibi.type, row.q_head * call.alibi.strides[0]);
          }
        }
        const int newest = segment.block.kv_len - segment.block.q_len;
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& s = S[g][n][2 * h + j];
            const int key = first_key + 8 * n + lane % 4 * 2 + j;
            if (key < keys.begin || key >= keys.end) {
              s = minus_infinity();
            } else if constexpr (kRuled) {
              s *= call.scale;
              if (call.has_score_rules) {
                s = score_with_rules(call, segment.sequence, row, key, key - newest, s);
              }
              s *= kLog2E;
            }
          }
        }
      }
    }
  }

  /// Raises the max of rows with a score above it by more than the slack.
  __device__ void raise_max(const ScoreTile& S, float factor) {
    float most[kGroups][2];
    bool above = false;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        most[g][h] = fmaxf(S[g][0][2 * h], S[g][0][2 * h + 1]);
#pragma unroll
        for (int n = 1; n < kKeyTiles; ++n) {
          most[g][h] = fmaxf(most[g][h], fmaxf(S[g][n][2 * h], S[g][n][2 * h + 1]));
        }
        above |= most[g][h] * factor > max[g][h] + kSlack;
      }
    }
    if (!__any_sync(kAllLanes, above)) return;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        most[g][h] = fmaxf(most[g][h], __shfl_xor_sync(kAllLanes, most[g][h], 1));
        most[g][h] = fmaxf(most[g][h], __shfl_xor_sync(kAllLanes, most[g][h], 2));
        const float score = most[g][h] * factor;
        // Each row by itself, for its bits: a factor of 1 changes none.
        const bool raises = score > max[g][h] + kSlack;
        const float raised = raises ? score - TensorCore<Element>::kMaxOffset : max[g][h];
        const float shrink = raises ? exp2_of(max[g][h] - raised) : 1.0f;
        max[g][h] = raised;
        sum[g][h] *= shrink;
#pragma unroll
        for (int d = 0; d < kDimTiles; ++d) {
          O[g][d][2 * h] *= shrink;
          O[g][d][2 * h + 1] *= shrink;
        }
      }
    }
  }

  /// S becomes the weights: 2^−∞, which is 0, where a key is hidden.
  __device__ void weigh(ScoreTile& S, float factor) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      float reference[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) reference[h] = max[g][h] == minus_infinity() ? 0.0f : max[g][h];
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          S[g][n][i] = exp2_of(__fmaf_rn(S[g][n][i], factor, -reference[i / 2]));
          sum[g][i / 2] += S[g][n][i];
        }
      }
    }
  }

  __device__ void accumulate(const ScoreTile& P, unsigned sV) {
    // Matrices of B: keys 0–7, 8–15 of dims 0–7, then of dims 8–15.
    const int lane = lane_id_again();
    const unsigned v_lane = sV + (VMemory::row_offset(lane % 16) ^ (lane / 16 * 16u));
    constexpr int kPanelPieces = VMemory::kPanel / 8;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      std::uint32_t rP[kGroups][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&p)[4] = P[g][2 * c + i / 2];
          rP[g][i] = TensorCore<Element>::pack(p[i % 2 * 2], p[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int d = 0; d < kVHeadDim / 16; ++d) {
        std::uint32_t rV[4];
        load_matrices_transposed((v_lane ^ (2 * d % kPanelPieces * 16u)) + c * VMemory::kBytes +
                                     2 * d / kPanelPieces * VMemory::kPanelBytes,
                                 rV);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply_add<Element>(O[g][2 * d], rP[g], rV[0], rV[1]);
          multiply_add<Element>(O[g][2 * d + 1], rP[g], rV[2], rV[3]);
        }
      }
    }
  }

  /// Bit h·16 + n·2 + j: this lane's j-th key of tile n is not hidden from row lane/4 + 8·h.
  static __device__ void note_seen(const ScoreTile& S, std::uint32_t (&seen)[kGroups]) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      seen[g] = 0;
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (S[g][n][i] != minus_infinity()) seen[g] |= 1u << (i / 2 * 16 + n * 2 + i % 2);
        }
      }
    }
  }

  /// Elements that are NaN or infinite, for the rows that see them: weights do not matter,
  /// and `accumulate` is to find 0 in their place.
  __device__ void add_not_finite(const ScoreTile& S, unsigned sV) {
    std::uint32_t seen[kGroups];
    note_seen(S, seen);
    const int lane = lane_id_again();
#pragma unroll 1
    for (int key = 0; key < kWideKeys; ++key) {
      std::uint32_t bits[kGroups];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const int source = (lane & ~3) | (key % 8 / 2);
        bits[g] = shuffle(seen[g], source) >> (key / 8 * 2 + key % 2);
      }
      const unsigned at = sV + key / kChunk * VMemory::kBytes + lane % 4 * 4;
#pragma unroll
      for (int d = 0; d < kDimTiles; ++d) {
        const std::uint32_t pair = load_shared_pair(at + VMemory::offset(key % kChunk, d));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t half = j == 0 ? pair & 0xffffu : pair >> 16;
          if (!TensorCore<Element>::not_finite(half)) continue;
          const float value =
              static_cast<float>(Element::bitcast(static_cast<std::uint16_t>(half)));
#pragma unroll
          for (int g = 0; g < kGroups; ++g) {
            if ((bits[g] & 1u) != 0) O[g][d][j] += value;
            if ((bits[g] & 0x10000u) != 0) O[g][d][2 + j] += value;
          }
        }
      }
    }
  }
};

}  // namespace leanattn::cuda
