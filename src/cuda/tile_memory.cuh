// How 16 rows of K or V, or the rows of Q, lie in shared memory: in panels of 16, 32 or
// 64 elements, whose 16-byte pieces are swizzled so that neither the copies nor ldmatrix
// meet a bank twice.
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/swizzle.hpp>

#include "cuda/device_functions.cuh"

namespace leanattn::cuda {

/// Keys that a warp takes at a time: the M of its matrix product.
inline constexpr int kChunk = 16;

template <int kRows, int kDim>
struct TileMemory {
  static constexpr int kPanel = kDim % 64 == 0 ? 64 : kDim % 32 == 0 ? 32 : 16;  // elements
  static constexpr int kPanelBytes = kRows * kPanel * 2;
  static constexpr int kPieces = kDim / 8;  // of 16 bytes, in a row
  static constexpr int kBytes = kRows * kDim * 2;
  static_assert(kDim % 16 == 0);

  // 8 rows of a panel cover 1024, 512 or 256 bytes: 3, 2 or 1 bits of the row move pieces.
  using Swizzle = cute::Swizzle<kPanel == 64 ? 3 : kPanel == 32 ? 2 : 1, 4, 3>;

  /// Byte offset of piece 0 of `row` in a panel, moved as its pieces are: the offset of
  /// piece p of that panel is this ^ (p·16).
  [[nodiscard]] __device__ static unsigned row_offset(int row) {
    return static_cast<unsigned>(Swizzle::apply(row * kPanel * 2));
  }
  /// Byte offset of a piece.
  [[nodiscard]] __device__ static unsigned offset(int row, int piece) {
    constexpr int kPanelPieces = kPanel / 8;
    return static_cast<unsigned>(piece / kPanelPieces * kPanelBytes) +
           (row_offset(row) ^ static_cast<unsigned>(piece % kPanelPieces * 16));
  }
};

/// Rows of K and of V in shared memory: 16, or those of a stage.
struct ChunkMemory {
  std::byte* k = nullptr;
  std::byte* v = nullptr;
};

/// Four 8×8 matrices, `address` being the row of lane % 8 of matrix lane / 8.
__device__ inline void load_matrices(const std::byte* address, std::uint32_t (&r)[4]) {
  cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<const cute::uint128_t*>(address), r[0], r[1],
                                r[2], r[3]);
}
__device__ inline void load_matrices_transposed(const std::byte* address, std::uint32_t (&r)[4]) {
  cute::SM75_U16x8_LDSM_T::copy(*reinterpret_cast<const cute::uint128_t*>(address), r[0], r[1],
                                r[2], r[3]);
}

}  // namespace leanattn::cuda
