// Attention on the device by its definition: two passes over the keys, in double
// precision, one thread block per query and head. The yardstick of every timed answer;
// itself held against leanattn::reference first (check.h).
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "leanattn/problem.h"

namespace leanattn::bench {

/// The keys and values are f16 or bf16 of 64, 128 or 256 dimensions, contiguous or paged
/// by a dense table of int32; there are no rules but a scale and a window, and queries
/// are uniform. Writes f32 [batch, q_len, q_heads, head_dim] to `out`.
void plain_attention(const Arguments& arguments, const ScoreRules& rules, float* out,
                     cudaStream_t stream);

/// Adds Σ (out − wanted)² and Σ wanted² over `count` elements to sums[0] and sums[1].
/// `out` is f16 or bf16.
void add_squares(const void* out, ElementType type, const float* wanted, std::int64_t count,
                 double* sums, cudaStream_t stream);

}  // namespace leanattn::bench
