// How 16 rows of K or V, or the rows of Q, lie in shared memory: in panels of 16, 32 or
// 64 elements, whose 16-byte pieces are swizzled so that neither the copies nor ldmatrix
// meet a bank twice.
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm75.hpp>
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

/// Addresses in shared memory of 16 rows of K and of V.
struct ChunkMemory {
  unsigned k = 0;
  unsigned v = 0;
};

/// Four 8×8 matrices, `address` being that of row lane % 8 of matrix lane / 8.
__device__ inline void load_matrices(unsigned address, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
/// Each transposed.
__device__ inline void load_matrices_transposed(unsigned address, std::uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
[[nodiscard]] __device__ inline uint4 load_shared_piece(unsigned address) {
  uint4 piece;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
               : "r"(address)
               : "memory");
  return piece;
}
__device__ inline void store_shared_piece(unsigned address, const uint4& piece) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(piece.x),
               "r"(piece.y), "r"(piece.z), "r"(piece.w)
               : "memory");
}
/// The bits of one f16 or bf16.
[[nodiscard]] __device__ inline std::uint16_t load_shared_half(unsigned address) {
  std::uint16_t bits;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(address) : "memory");
  return bits;
}
__device__ inline void store_shared_half(unsigned address, std::uint16_t bits) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(bits) : "memory");
}

}  // namespace leanattn::cuda
