// The compiled kernels: one row for each element type, pair of head dims and number of
// row tiles. What is not here, the backend refuses with a sentence.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "cuda/block_layout.h"
#include "leanattn/tensor.h"

namespace leanattn {
struct Problem;
}

namespace leanattn::cuda {

/// The scores a kernel makes.
enum class Scores : std::uint8_t {
  kAny,
  kPlain,  // scale·(q·k) with a positive scale
  kRuled,  // with softcap, ALiBi, bias or tree mask, or any scale
};

/// A kernel for contiguous caches, and one for paged ones: what cudaLaunchKernelExC takes.
struct KernelCode {
  const void* contiguous = nullptr;
  const void* paged = nullptr;
};

/// A compiled LeanTile kernel.
struct CompiledKernel {
  ElementType type = ElementType::kBFloat16;
  int head_dim = 0;
  int v_head_dim = 0;
  int row_tiles = 1;  // groups of 8 packed query rows of an output tile
  Scores scores = Scores::kAny;
  KernelCode any;                 // for every call; the others take the same room
  KernelCode common_stream_k;     // for calls as for_each_common_condition says, or null
  KernelCode common_whole_tiles;  // for those of the other partitions
  std::array<BlockLayout, kBlockKilobytes.size()> layouts;  // as kBlockKilobytes
  const void* combine = nullptr;                            // the second launch of fixed_split

  [[nodiscard]] int tile_m() const { return 8 * row_tiles; }
  /// Warps have rows of their own (wide_kernel.cuh), and blocks no clusters.
  [[nodiscard]] bool is_wide() const { return scores != Scores::kAny; }
};

/// All of them: sorted by type, head dims and row tiles.
[[nodiscard]] std::span<const CompiledKernel> compiled_kernels();

/// The kernel of `problem` for output tiles of up to `rows` rows: the smallest that holds
/// them, else the largest. Null where head dims or type are not compiled.
[[nodiscard]] const CompiledKernel* find_kernel(const Problem& problem, std::int64_t rows);

/// "64, 80, …, (192, 128)" of an element type.
[[nodiscard]] std::string head_dims_text(ElementType type);

/// The rows of one element type and pair of head dims; instantiated by one file each.
template <class Element, int kHeadDim, int kVHeadDim>
struct LeanTileKernels {
  [[nodiscard]] static std::span<const CompiledKernel> rows();
};

}  // namespace leanattn::cuda
