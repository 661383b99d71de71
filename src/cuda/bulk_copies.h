// Which caches Hopper's copy engine can read, and how it is told of one.
#pragma once

#include "cuda/kv_maps.h"
#include "leanattn/tensor.h"

namespace leanattn::cuda {

/// Whether the copy engine can read a cache: rows and strides at multiples of 16 bytes,
/// pages of a multiple of 16 keys, extents and strides within its bounds.
[[nodiscard]] bool bulk_copies_suit(const KvView& kv);

/// Keys that one copy brings of a cache that suits, of at most `most` (a power of two).
[[nodiscard]] int rows_together(const KvView& kv, int most);

/// The maps of a cache that suits, for copies of `rows` keys. Throws CudaError.
[[nodiscard]] KvMaps make_kv_maps(const KvView& kv, int rows);

}  // namespace leanattn::cuda
