// Whose share a place takes next. Where stream_k has more workers than there are places, these
// come by the others as they get ready: a counter in the workspace says how many have been
// claimed. Which place computes a share changes no bit of it.
#pragma once

#include "cuda/barrier.cuh"
#include "cuda/cursor.cuh"

namespace leanattn::cuda {

/// The next worker that no place has; at least `num_workers` if all have one. With a whole warp.
/// Every place claims until then, so the last claim of all is known, and leaves the counter at 0.
[[nodiscard]] __device__ inline int claim_share(const Call& call, int num_workers) {
  int claimed = 0;
  if (lane_id() == 0) {
    claimed = static_cast<int>(atomicAdd(call.claims, 1u));
    if (claimed + 1 == max(num_workers, call.num_places)) *call.claims = 0;
  }
  return call.num_places + shuffle(claimed, 0);
}

/// The claims of a block as the warps hear of them that follow its segments. One of them makes
/// the claims.
template <class Memory>
class Claims {
 public:
  __device__ Claims(const Call& call, const Memory& memory) : call_(call), memory_(memory) {}

  /// The worker after `worker`; waits for the claim to be made.
  [[nodiscard]] __device__ int worker_after(int worker) {
    if (call_.claims == nullptr) return worker + call_.num_places;
    memory_.claimed(place_.index).wait(place_.parity);
    const int next = memory_.claim(place_.index);
    memory_.heard(place_.index).arrive_as_warp();
    place_.advance();
    return next;
  }

 private:
  const Call& call_;
  const Memory& memory_;
  RingPlace<Memory::kClaims> place_;
};

/// Makes the claims of a block, one ahead of the share that its own warp is at.
template <class Memory>
class Claimer {
 public:
  __device__ Claimer(const Call& call, const Memory& memory) : call_(call), memory_(memory) {}

  /// Before `Claims::worker_after` is asked, and again once its share has been begun.
  __device__ void claim_ahead(int worker, int num_workers) {
    if (call_.claims == nullptr || ended_ || worker == claimed_behind_) return;
    claimed_behind_ = worker;
    memory_.heard(place_.index).wait(place_.parity ^ 1);
    const int claimed = claim_share(call_, num_workers);
    if (lane_id() == 0) memory_.claim(place_.index) = claimed;
    memory_.claimed(place_.index).arrive_as_warp();
    place_.advance();
    ended_ = claimed >= num_workers;
  }

 private:
  const Call& call_;
  const Memory& memory_;
  RingPlace<Memory::kClaims> place_;
  int claimed_behind_ = -1;  // the worker that the last claim was to follow
  bool ended_ = false;
};

}  // namespace leanattn::cuda
