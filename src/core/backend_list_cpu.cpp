// The backends of a build without CUDA; its sibling is cuda/backend_list.cpp.
#include <array>

#include "cpu/cpu_backend.h"
#include "leanattn/backend.h"

namespace leanattn {

std::span<const Backend* const> backends() {
  static const std::array<const Backend*, 1> list{&cpu::cpu_backend()};
  return list;
}

}  // namespace leanattn
