// Transaction barriers (PTX mbarrier) and the rings that they guard.
#pragma once

#include <cstdint>

#include "cuda/async_copy.cuh"

namespace leanattn::cuda {

/// A barrier in shared memory whose phases follow each other: one is complete when all
/// have arrived, and with them the bytes that were announced.
class Barrier {
 public:
  static constexpr int kBytes = 8;
  /// The one at `address` in shared memory, a multiple of 8.
  __device__ explicit Barrier(unsigned address) : address_(address) {}

  __device__ void init(int arrivals) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_), "r"(arrivals)
                 : "memory");
  }
  /// What a warp's arrival counts.
#ifdef LEANATTN_CUDA_EVERY_LANE_ARRIVES
  static constexpr int kOfWarp = 32;
#else
  static constexpr int kOfWarp = 1;
#endif
  /// A warp arrives, after what all of its lanes have read and written. One lane speaks for it,
  /// which compute-sanitizer's racecheck does not see: for it, every lane can.
  __device__ void arrive_as_warp() const {
    __syncwarp();
    if (kOfWarp > 1 || threadIdx.x % 32 == 0) arrive();
  }
  __device__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address_) : "memory");
  }
  /// Arrives once this thread's asynchronous copies have landed; at once if it did not use
  /// them but stored by itself.
  __device__ void arrive_after_copies(bool asynchronous) const {
    if (asynchronous) {
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_)
                   : "memory");
    } else {
      arrive();
    }
  }
  /// Waits until the phase of `parity` is complete.
  __device__ void wait(unsigned parity) const {
    unsigned done = 0;
    while (done == 0) {
      asm volatile(
          "{\n"
          ".reg .pred complete;\n"
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
          "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
#else
          "mbarrier.test_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
#endif
          "selp.u32 %0, 1, 0, complete;\n"
          "}\n"
          : "=r"(done)
          : "r"(address_), "r"(parity)
          : "memory");
    }
  }
  /// Arrives at the same barrier of block `rank` of the cluster, after all that this thread
  /// has read and written.
  __device__ void arrive_at(int rank) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(address_),
        "r"(rank)
        : "memory");
#endif
  }
  /// Arrives, and announces that many bytes of stores by `ClusterStore`.
  __device__ void arrive_expecting(int bytes) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_),
                 "r"(bytes)
                 : "memory");
#endif
  }
  [[nodiscard]] __device__ unsigned address() const { return address_; }

 private:
  unsigned address_;
};

/// Makes initialised barriers known to the cluster.
__device__ inline void fence_barrier_init() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

/// The barrier of all threads of a cluster. Clusters are from compute capability 9.0 on. It
/// publishes initialised barriers (after `fence_barrier_init`), and no other writes.
__device__ inline void cluster_arrive() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ inline void cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/// A place in a ring of kSize, and the parity of its current round.
template <int kSize>
struct RingPlace {
  int index = 0;
  unsigned parity = 0;

  /// `places` ≤ kSize.
  __device__ void advance(int places = 1) {
    index += places;
    if (index >= kSize) {
      index -= kSize;
      parity ^= 1;
    }
  }
  /// Any number of places.
  __device__ void advance_far(int places) {
    const int rounds = (index + places) / kSize;
    index += places - rounds * kSize;
    parity ^= static_cast<unsigned>(rounds & 1);
  }
};

}  // namespace leanattn::cuda
