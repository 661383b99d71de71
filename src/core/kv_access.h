// Where a key lies in a cache: the address arithmetic of the three layouts, in 64
// bits, for code that takes one key at a time. Nothing here checks anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/tensor_checks.h"
#include "leanattn/tensor.h"

namespace leanattn::core {

/// Indices of a key in the first two dimensions of k and v.
struct KvSlot {
  std::int64_t page = 0;  // contiguous: the cache row
  std::int64_t slot = 0;  // within the page
};

/// The slot of key `key` of sequence `b`. Reads one entry of the page table.
template <class Pointer>
[[nodiscard]] KvSlot slot_of(const BasicKvView<Pointer>& kv, std::int64_t b, std::int64_t key) {
  if (kv.layout == KvLayout::kContiguous) {
    return {kv.cache_rows.given() ? kv.cache_rows[b] : b, key};
  }
  const std::int64_t entry = key / kv.page_size();
  const std::int64_t page = kv.layout == KvLayout::kPagedDense
                                ? kv.page_table.at(b, entry)
                                : kv.page_ids[kv.page_indptr[b] + entry];
  return {page, key % kv.page_size()};
}

/// The row of `head` at `slot` of `cache`, which is k or v of a cache.
template <class Pointer>
[[nodiscard]] Pointer row_pointer(const TensorView<4, Pointer>& cache, const KvSlot& slot,
                                  std::int64_t head) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte, const std::byte>;
  return static_cast<Byte*>(cache.data) +
         cache.offset(slot.page, slot.slot, head) * size_of(cache.type);
}

/// Pages that sequence `b` owns; of a contiguous cache, its one row.
[[nodiscard]] inline std::int64_t num_pages_of(const KvView& kv, std::int64_t b) {
  switch (kv.layout) {
    case KvLayout::kContiguous: return 1;
    case KvLayout::kPagedDense: return kv.page_table.columns;
    case KvLayout::kPagedCsr: return kv.page_indptr[b + 1] - kv.page_indptr[b];
  }
  return 0;
}

/// Keys that sequence `b` can hold at most.
[[nodiscard]] inline std::int64_t capacity_of(const KvView& kv, std::int64_t b) {
  return product(num_pages_of(kv, b), kv.page_size());
}

}  // namespace leanattn::core
