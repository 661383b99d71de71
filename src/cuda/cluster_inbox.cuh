// How the blocks of a cluster merge: each pushes its share of a slice into the shared memory of
// the block that merges it, where the bytes arrive at a barrier by themselves (PTX st.async).
#pragma once

#include "cuda/barrier.cuh"
#include "cuda/merge.cuh"

namespace leanattn::cuda {

/// Stores into the shared memory of another block of the cluster, which arrive at a barrier
/// there by themselves: who waits for it sees them.
class ClusterStore {
 public:
  /// `memory` and `barrier` are this block's; meant are those of block `rank`.
  __device__ ClusterStore(const float* memory, Barrier barrier, int rank)
      : to_(there(shared_address(memory), rank)), barrier_(there(barrier.address(), rank)) {}

  __device__ void store(int offset, const float4& value) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, "
        "[%5];" ::"r"(to_ + 4 * offset),
        "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(barrier_)
        : "memory");
#endif
  }
  __device__ void store(int offset, const float2& value) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
            to_ + 4 * offset),
        "f"(value.x), "f"(value.y), "r"(barrier_)
        : "memory");
#endif
  }

 private:
  [[nodiscard]] static __device__ unsigned there(unsigned address, int rank) {
    unsigned mapped = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
#endif
    return mapped;
  }
  unsigned to_;
  unsigned barrier_;
};

/// Where the blocks of a cluster leave slices for the one that merges them: slice s for
/// block s % size, in its shared memory.
struct ClusterInbox {
  float* memory;    // of this block: [ceil(slices / size)][size][kSliceFloats]
  Barrier arrived;  // that the slices for this block have
  int rank;         // this block
  Divisor size;     // of the cluster

  [[nodiscard]] static constexpr int floats(int slices) {
    return (slices + kMostClusterBlocks - 1) / kMostClusterBlocks * kMostClusterBlocks *
           kSliceFloats;
  }

  /// Sends this block's share of a slice to the block that merges it.
  __device__ void send(int slice, const Position& position) const {
    const int nth = slice / size;
    const int blocks = size.value();
    const ClusterStore to(memory + (nth * blocks + rank) * kSliceFloats, arrived,
                          slice - nth * blocks);
    to.store(4 * lane_id(), position.out);
    to.store(4 * kLanes + 2 * lane_id(), float2{position.state.max, position.state.sum});
  }
  /// Announces what this block is to be sent: all shares of `count` slices. By one thread.
  __device__ void expect(int count) const {
    arrived.arrive_expecting(count * size.value() * kSliceFloats * static_cast<int>(sizeof(float)));
  }
  /// One block's share of a slice.
  struct Received {
    const float* at;
    [[nodiscard]] __device__ float4 out() const {
      return reinterpret_cast<const float4*>(at)[lane_id()];
    }
    [[nodiscard]] __device__ SoftmaxState state() const {
      const float2 state = reinterpret_cast<const float2*>(at + 4 * kLanes)[lane_id()];
      return {state.x, state.y};
    }
  };
  /// This block's n-th slice, once all has arrived.
  [[nodiscard]] __device__ Position merged(int nth) const {
    return merge_few_positions<kMostClusterBlocks>(size.value(), [&](int i) {
      return Received{memory + (nth * size.value() + i) * kSliceFloats};
    });
  }
};

}  // namespace leanattn::cuda
