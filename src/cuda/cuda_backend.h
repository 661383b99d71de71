// The CUDA backend: LeanAttention in one launch on NVIDIA GPUs.
#pragma once

#include "leanattn/backend.h"

namespace leanattn::cuda {

[[nodiscard]] const Backend& cuda_backend();

}  // namespace leanattn::cuda
