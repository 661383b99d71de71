// The backends of a build with CUDA, best first; its sibling is
// core/backend_list_cpu.cpp.
#include <array>

#include "cpu/cpu_backend.h"
#include "cuda/cuda_backend.h"
#include "leanattn/backend.h"

namespace leanattn {

std::span<const Backend* const> backends() {
  static const std::array<const Backend*, 2> list{&cuda::cuda_backend(), &cpu::cpu_backend()};
  return list;
}

}  // namespace leanattn
