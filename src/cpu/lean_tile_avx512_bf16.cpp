// The LeanTile code for AVX-512 with bf16 products. Highway 1.0 has no such
// target, so its AVX-512 target is compiled once more, with the instructions added.
#define LEANATTN_DISABLED_TARGETS HWY_AVX2
#include "cpu/lean_tile_targets.h"
#define LEANATTN_BF16_PRODUCTS 1

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/lean_tile_avx512_bf16.cpp"
#include "hwy/foreach_target.h"
// foreach_target.h includes this file once per target, so it comes first.
#include "hwy/highway.h"
//
#if HWY_TARGET == HWY_AVX3
#undef HWY_TARGET_STR
#define HWY_TARGET_STR HWY_TARGET_STR_AVX3 ",avx512bf16"
#include "cpu/lean_tile-inl.h"
#endif

#if HWY_ONCE
#include "cpu/lean_tile_code.h"

namespace leanattn::cpu {

#if HWY_TARGETS & HWY_AVX3
const LeanTileCode* avx512_bf16_code() { return N_AVX3::lean_tile_code(); }
#endif

}  // namespace leanattn::cpu
#endif
