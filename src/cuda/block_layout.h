// How much shared memory a block may have. Blocks are laid out by it when a kernel is compiled
// for a compute capability, and launched as that layout asks.
#pragma once

#include <array>

#include "cuda/divisor.h"

namespace leanattn::cuda {

/// Kilobytes of shared memory that a block may have, of the compute capabilities there are.
inline constexpr std::array kBlockKilobytes{227, 163, 99};

/// Which of these is that of a compute capability, 10·major + minor.
[[nodiscard]] LEANATTN_HOST_DEVICE constexpr int block_layout_of(int compute_capability) {
  if (compute_capability >= 90 && compute_capability < 120) return 0;
  return compute_capability == 80 || compute_capability == 87 ? 1 : 2;
}

/// What is being compiled for: in host code it stands for all.
#ifdef __CUDA_ARCH__
inline constexpr int kBlockLayout = block_layout_of(__CUDA_ARCH__ / 10);
#else
inline constexpr int kBlockLayout = 0;
#endif

/// What a launch needs to know of a kernel's layout.
struct BlockLayout {
  int threads = 0;  // of a block; 0: there is no room for the kernel
  int shared_bytes = 0;
  bool clusters = false;  // may be of several blocks
};

}  // namespace leanattn::cuda
