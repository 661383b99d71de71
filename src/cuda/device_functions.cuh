// Small things that every part of the kernels uses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/call.h"
#include "leanattn/softmax_state.h"

namespace leanattn::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

[[nodiscard]] __device__ inline int lane_id() {
  return static_cast<int>(threadIdx.x % unsigned{kLanes});
}
/// The same in all lanes, and known to be: what depends on it alone does not diverge. Ask
/// once.
[[nodiscard]] __device__ inline int warp_id() {
  return __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / unsigned{kLanes}), 0);
}
[[nodiscard]] __device__ inline int num_warps() {
  return static_cast<int>(blockDim.x / unsigned{kLanes});
}

/// Barriers of some of a block's warps, besides that of all.
enum class BlockBarrier : int {
  kTeam = 1,   // of a team of warps with a tile; the next is of another team
  kTiles = 3,  // of all warps with a tile
  kSetUp = 4,  // of one of these and all others: what all use is set up
};

/// Waits until `warps` warps have come to the `nth` barrier of its kind.
__device__ inline void sync_warps(BlockBarrier barrier, int warps, int nth = 0) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<int>(barrier) + nth), "r"(warps * kLanes)
               : "memory");
}
/// Comes to it, and does not wait.
__device__ inline void arrive_with_warp(BlockBarrier barrier, int warps) {
  asm volatile("bar.arrive %0, %1;" ::"r"(static_cast<int>(barrier)), "r"(warps * kLanes)
               : "memory");
}

template <class T>
[[nodiscard]] __device__ T shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}

[[nodiscard]] __device__ inline int inclusive_sum(int value) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, value, step);
    if (lane_id() >= step) value += other;
  }
  return value;
}

[[nodiscard]] __device__ constexpr int ceil_div_int(int a, int b) { return (a + b - 1) / b; }

/// Entry `column` of row `row`. Values are below 2^31 in a valid call: of an int64 the lower half
/// is all of it.
[[nodiscard]] __device__ inline int load_index(const Indices& indices, std::int64_t column,
                                               std::int64_t row = 0) {
  const std::int64_t i = row * indices.row_stride + column;
  const auto* entry = static_cast<const std::byte*>(indices.data) + (i << indices.shift);
  return *reinterpret_cast<const std::int32_t*>(entry);
}

[[nodiscard]] __device__ constexpr float minus_infinity() { return -__builtin_huge_valf(); }

[[nodiscard]] __device__ inline std::int64_t nanoseconds() {
  std::int64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

/// The registers of a thread from now on; with all warps of a warpgroup.
template <int kCount>
__device__ void more_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ void fewer_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

/// Lets the next call in the stream start (programmatic dependent launch).
__device__ inline void let_next_call_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// Waits until the call ahead has ended and its writes are visible. At once if this call
/// was not started early.
__device__ inline void wait_for_call_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace leanattn::cuda
