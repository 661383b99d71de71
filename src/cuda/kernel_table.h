// The compiled kernels: one row for each element type, pair of head dims and number of
// row tiles. What is not here, the backend refuses with a sentence.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "leanattn/tensor.h"

namespace leanattn::cuda {

/// A compiled LeanTile kernel. The pointers are what cudaLaunchKernelExC takes.
struct CompiledKernel {
  ElementType type = ElementType::kBFloat16;
  int head_dim = 0;
  int v_head_dim = 0;
  int row_tiles = 1;  // groups of 8 packed query rows of an output tile
  const void* kernel = nullptr;
  int (*shared_bytes)(int) = nullptr;  // of a block of so many warps
  int most_warps = 8;                  // of a block, that its shared memory allows
  const void* bulk_kernel = nullptr;   // with bulk tensor copies; compute capability 9.0 and up
  int bulk_shared_bytes = 0;
  int bulk_threads = 0;
  int bulk_keys = 0;  // of a stage
  const void* combine = nullptr;  // the second launch of fixed_split

  [[nodiscard]] int tile_m() const { return 8 * row_tiles; }
};

/// All of them: sorted by type, head dims and row tiles.
[[nodiscard]] std::span<const CompiledKernel> compiled_kernels();

/// The kernel for `rows` packed query rows of a sequence: the smallest that holds them,
/// else the largest. Null where head dims or type are not compiled.
[[nodiscard]] const CompiledKernel* find_kernel(ElementType type, std::int64_t head_dim,
                                                std::int64_t v_head_dim, std::int64_t rows);

/// "64, 80, …, (192, 128)" of an element type.
[[nodiscard]] std::string head_dims_text(ElementType type);

/// The rows of one element type and pair of head dims; instantiated by one file each.
template <class Element, int kHeadDim, int kVHeadDim>
struct LeanTileKernels {
  [[nodiscard]] static std::span<const CompiledKernel> rows();
};

}  // namespace leanattn::cuda
