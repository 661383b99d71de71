// Puts the kernels of a call into a stream.
#pragma once

#include "cuda/call.h"
#include "cuda/kernel_table.h"
#include "leanattn/attention.h"

namespace leanattn::cuda {

/// Launches `call` of `plan`: one kernel, or for fixed_split two. Throws CudaError.
void launch(const Plan& plan, const Call& call, const CompiledKernel& kernel, const Stream& stream);

/// The layout of `kernel`'s blocks on the current device, which is then ready for launches of it.
[[nodiscard]] const BlockLayout& block_layout(const CompiledKernel& kernel);

/// Thread blocks of `kernel` that an SM of the current device holds; 0 if its shared memory
/// does not suffice for one, or the kernel was not compiled for it.
[[nodiscard]] int resident_blocks(const CompiledKernel& kernel);

/// Clusters of `size` blocks of `kernel` that the current device runs at once.
[[nodiscard]] int max_clusters(const CompiledKernel& kernel, int size);

/// 10·major + minor of a device.
[[nodiscard]] int compute_capability(int device);

}  // namespace leanattn::cuda
