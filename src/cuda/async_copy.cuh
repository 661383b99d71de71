// Asynchronous copies of 16 bytes from device memory into shared memory (PTX cp.async).
#pragma once

#include <cstdint>
#include <cute/arch/copy_sm90_desc.hpp>

namespace leanattn::cuda {

/// How soon what is read is read again, by this call or the next: the L2 gives up lines that
/// are read once before others.
enum class Reuse : std::uint8_t { kOnce, kOften };

/// Copies of 16 bytes; `to` is an address in shared memory.
template <Reuse kReuse>
struct AsyncCopy {
  static __device__ void copy(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "l"(policy())
                 : "memory");
  }
  /// Clears `to`, and reads nothing, unless `valid`.
  static __device__ void copy_or_clear(unsigned to, const void* from, bool valid) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
                 "l"(from), "r"(valid ? 16 : 0), "l"(policy())
                 : "memory");
  }

 private:
  /// What createpolicy makes; as a constant, which goes into uniform registers, where the copies
  /// want it, and not through others. CuTe knows those of compute capability 9.0 on.
  [[nodiscard]] static __device__ std::uint64_t policy() {
    constexpr bool kFirst = kReuse == Reuse::kOnce;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    using Hint = cute::TMA::CacheHintSm90;
    return static_cast<std::uint64_t>(kFirst ? Hint::EVICT_FIRST : Hint::EVICT_NORMAL);
#else
    std::uint64_t policy;
    if constexpr (kFirst) {
      asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    } else {
      asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    }
    return policy;
#endif
  }
};

/// The address in shared memory of `memory` there.
[[nodiscard]] __device__ inline unsigned shared_address(const void* memory) {
  return static_cast<unsigned>(__cvta_generic_to_shared(memory));
}

}  // namespace leanattn::cuda
