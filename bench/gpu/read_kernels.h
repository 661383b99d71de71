// Reading bytes and nothing else, in three ways: what no attention can beat. And filling
// memory with random values.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "leanattn/tensor.h"

namespace leanattn::bench {

enum class ReadWay : std::uint8_t {
  kPlain,      // 4 blocks of 512 threads per SM, 8 independent 16-byte loads each
  kPipelined,  // 2 blocks of 512 threads per SM, always 8 loads in flight
  kBulk,       // 1 block per SM, cp.async.bulk of 8 KB, 8 in flight; sm_90
};
inline constexpr std::array kReadWays = {ReadWay::kPlain, ReadWay::kPipelined, ReadWay::kBulk};

/// "plain", "pipelined" or "bulk".
[[nodiscard]] std::string_view name_of(ReadWay way);

/// Whether this device and this build have it. Call it once for a way before `read`.
[[nodiscard]] bool prepare(ReadWay way);

/// Reads `bytes` at `data`, both multiples of 16. Writes to `sink`, 16 bytes, only if the
/// exclusive-or of what a thread read is one value of 2^128.
void read(ReadWay way, const void* data, std::int64_t bytes, void* sink, cudaStream_t stream);

/// Fills memory with values uniform in [−1, 1), made of `seed` and their place. `bytes` is
/// a multiple of 16, `type` is f16 or bf16.
void fill(void* data, ElementType type, std::int64_t bytes, std::uint64_t seed,
          cudaStream_t stream);

}  // namespace leanattn::bench
