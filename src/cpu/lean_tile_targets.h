// Which of Highway's targets get LeanTile code; included before foreach_target.h.
//
// Three widths suffice on x86 (SSE4, which is the baseline, AVX2, AVX-512): a machine
// between two of them loses nothing the code could use, which moves bytes and
// multiplies. Scalable vectors (SVE, RVV) have
// no size that a register tile could be made of; SVE machines run the NEON code.
#pragma once

#include "hwy/detect_targets.h"

// The file that includes this may name more in LEANATTN_DISABLED_TARGETS.
#ifndef LEANATTN_DISABLED_TARGETS
#define LEANATTN_DISABLED_TARGETS 0
#endif

#undef HWY_DISABLED_TARGETS
#if defined(HWY_AVX3_SPR)  // Highway 1.1 and later know more targets
#define HWY_DISABLED_TARGETS                                                                       \
  (LEANATTN_DISABLED_TARGETS | HWY_SSE2 | HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR | \
   HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#else
#define HWY_DISABLED_TARGETS                                                                \
  (LEANATTN_DISABLED_TARGETS | HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | \
   HWY_SVE2_128)
#endif
