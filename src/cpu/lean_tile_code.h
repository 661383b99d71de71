// The tables of lean_tile*.cpp, one per instruction set.
#pragma once

#include "cpu/lean_tile.h"

namespace leanattn::cpu {

const LeanTileCode* avx512_bf16_code();
const LeanTileCode* avx512_code();
const LeanTileCode* avx2_code();
const LeanTileCode* baseline_code();

}  // namespace leanattn::cpu
