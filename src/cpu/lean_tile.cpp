// The LeanTile code of every instruction set that Highway finds on this
// architecture: AVX-512 and AVX2 on x86, NEON on Arm, and the baseline of any.
#include "cpu/lean_tile_targets.h"
#define LEANATTN_BF16_PRODUCTS 0

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lean_tile.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h includes this file once per target, so it comes first.
#include "hwy/highway.h"
//
#include "cpu/lean_tile-inl.h"

#if HWY_ONCE
#include "cpu/lean_tile_code.h"

namespace leanattn::cpu {

#if HWY_TARGETS & HWY_AVX3
const LeanTileCode* avx512_code() { return N_AVX3::lean_tile_code(); }
#endif
#if HWY_TARGETS & HWY_AVX2
const LeanTileCode* avx2_code() { return N_AVX2::lean_tile_code(); }
#endif
const LeanTileCode* baseline_code() { return HWY_STATIC_DISPATCH(lean_tile_code)(); }

}  // namespace leanattn::cpu
#endif
