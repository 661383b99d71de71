// Tiles in shared memory by their addresses: matrices for the tensor cores, and the elements
// of V that are NaN or infinite. Wide tiles go by addresses, which take one register where
// pointers take two.
#pragma once

#include "cuda/lean_tile.cuh"

namespace leanattn::cuda {

[[nodiscard]] __device__ inline std::uint32_t load_shared_pair(unsigned address) {
  std::uint32_t pair;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(pair) : "r"(address) : "memory");
  return pair;
}

/// Whether some element of V in shared memory, of `count` pieces of 16 bytes, is NaN or
/// infinite; each thread looks at a part.
template <class Element>
[[nodiscard]] __device__ bool has_not_finite(unsigned sV, int count) {
  bool found = false;
#pragma unroll 1
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    const uint4 piece = load_shared_piece(sV + i * 16);
    for (const std::uint32_t pair : {piece.x, piece.y, piece.z, piece.w}) {
      found |= TensorCore<Element>::not_finite(pair);
    }
  }
  return found;
}

/// Makes such elements 0 once all threads of the block have come, for all of them. Out of line, as
/// everything that a common call does not come through.
template <class Element>
__device__ __noinline__ void hide_not_finite(unsigned sV, int count) {
  __syncwarp();
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; i < count * 4; i += blockDim.x) {
    std::uint32_t pair = load_shared_pair(sV + i * 4);
    if (!TensorCore<Element>::not_finite(pair)) continue;
    if (TensorCore<Element>::not_finite(pair & 0xffffu)) pair &= 0xffff0000u;
    if (TensorCore<Element>::not_finite(pair & 0xffff0000u)) pair &= 0xffffu;
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(sV + i * 4), "r"(pair) : "memory");
  }
  __syncthreads();
}

}  // namespace leanattn::cuda
