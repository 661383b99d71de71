// Other work on the device: thread blocks that compute until they are told to stop.
#pragma once

#include <cuda_runtime_api.h>

namespace leanattn::testing {

/// Keeps half of the SMs to itself, in a stream of its own, while it lives: other kernels
/// find the rest, and run in more rounds than they were made for. Stops by itself after a
/// minute. Nothing may wait for the whole device meanwhile: no cudaMalloc, no cudaFree,
/// no kernel for the first time.
class SpinningKernel {
 public:
  SpinningKernel();
  ~SpinningKernel();
  SpinningKernel(const SpinningKernel&) = delete;
  SpinningKernel& operator=(const SpinningKernel&) = delete;

  /// Whether it is still at work.
  [[nodiscard]] bool running() const;

 private:
  cudaStream_t stream_ = nullptr;
  int* stop_ = nullptr;      // pinned host memory that the device reads
  float* result_ = nullptr;  // where the kernel writes, lest it be optimised away
};

}  // namespace leanattn::testing
