// The CPU backend: Highway for vectors, OpenMP for workers.
#pragma once

#include "leanattn/backend.h"

namespace leanattn::cpu {

[[nodiscard]] const Backend& cpu_backend();

}  // namespace leanattn::cpu
