#include <algorithm>

#include "cuda/clear_counters.h"
#include "cuda/device_functions.cuh"

namespace leanattn::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) clear(std::uint32_t* counters, std::int64_t count) {
  let_next_call_start();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    counters[i] = 0;
  }
}

}  // namespace

cudaError_t clear_counters(std::uint32_t* counters, std::int64_t count, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 16;  // few, as the next call wants room
  const std::int64_t blocks = std::clamp<std::int64_t>(count / (4 * kThreads), 1, kMostBlocks);
  clear<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(counters, count);
  return cudaGetLastError();
}

}  // namespace leanattn::cuda
