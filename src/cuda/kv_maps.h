// The tensor maps of K and V, from which Hopper's copy engine finds neighbouring keys by
// their coordinates.
//
// Dimensions, innermost first: element of a panel, slot, panel, KV head, page (or cache
// row). A box is so many slots of all panels of one head: what TileMemory holds.
#pragma once

#include <cuda.h>

namespace leanattn::cuda {

struct KvMaps {
  CUtensorMap k;
  CUtensorMap v;
};

}  // namespace leanattn::cuda
