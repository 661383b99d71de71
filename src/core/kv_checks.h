// Checks of a cache view, shared by attention and by appending: k and v agree, the
// tables of the layout and no others are given, and the entries that a call will
// use are in range. An entry that no call uses is never read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "core/kv_access.h"
#include "core/tensor_checks.h"
#include "leanattn/error.h"
#include "leanattn/partition.h"
#include "leanattn/tensor.h"

namespace leanattn::core {

inline void check_cache_tensor(std::string_view name, const TensorView<4>& view, Device device) {
  check_floating(name, view.type);
  check_device(name, view.device, device);
  check_rows_contiguous(name, view);
  check_data(name, view);
}

inline void check_not_given(std::string_view name, const IndexView& view, KvLayout layout) {
  check(!view.given(), name, " is given, but the layout is ", name_of(layout),
        "; it must be left out, because it would be ignored");
}

inline void check_tables(const KvView& kv, std::int64_t batch, Device device) {
  if (kv.layout != KvLayout::kContiguous) {
    check_not_given("cache_rows", kv.cache_rows, kv.layout);
    check(kv.page_size() >= 1, "page_size is ", kv.page_size(), "; it must be at least 1");
  }
  if (kv.layout != KvLayout::kPagedDense) {
    check_not_given("page_table", kv.page_table, kv.layout);
  }
  if (kv.layout != KvLayout::kPagedCsr) {
    check_not_given("page_ids", kv.page_ids, kv.layout);
    check_not_given("page_indptr", kv.page_indptr, kv.layout);
  }
  if (batch == 0) return;
  switch (kv.layout) {
    case KvLayout::kContiguous:
      if (kv.cache_rows.given()) {
        check_index_vector("cache_rows", kv.cache_rows, batch, device);
      } else {
        check(kv.k.shape[0] >= batch, "k has ", kv.k.shape[0], " cache rows; it must have ", batch,
              ", one for each sequence");
      }
      break;
    case KvLayout::kPagedDense:
      check_index_table("page_table", kv.page_table, batch, kv.page_table.columns, device);
      break;
    case KvLayout::kPagedCsr:
      check_index_vector("page_indptr", kv.page_indptr, batch + 1, device);
      check_index_vector("page_ids", kv.page_ids, kv.page_ids.columns, device);
      break;
  }
}

/// All that can be told of `kv` without reading its tables.
inline void check_kv(const KvView& kv, std::int64_t batch, Device device) {
  check_cache_tensor("k", kv.k, device);
  check_cache_tensor("v", kv.v, device);
  check(kv.v.shape[0] == kv.k.shape[0] && kv.v.shape[1] == kv.k.shape[1] &&
            kv.v.shape[2] == kv.k.shape[2],
        "v is [", kv.v.shape[0], ", ", kv.v.shape[1], ", ", kv.v.shape[2],
        "] in its first three dimensions; it must be as k, which is [", kv.k.shape[0], ", ",
        kv.k.shape[1], ", ", kv.k.shape[2], "]");
  check_tables(kv, batch, device);
}

/// Cache rows lie in the cache; page_indptr rises within page_ids. Host memory.
inline void check_table_entries(const KvView& kv, std::int64_t batch) {
  if (kv.layout == KvLayout::kContiguous && kv.cache_rows.given()) {
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t row = kv.cache_rows[b];
      check(row >= 0 && row < kv.k.shape[0], "cache_rows[", b, "] is ", row,
            "; it must be at least 0 and below ", kv.k.shape[0], ", the rows of the cache");
    }
  }
  if (kv.layout == KvLayout::kPagedCsr) {
    std::int64_t previous = 0;
    for (std::int64_t b = 0; b < (batch == 0 ? 0 : batch + 1); ++b) {
      const std::int64_t begin = kv.page_indptr[b];
      check(begin >= previous && begin <= kv.page_ids.columns, "page_indptr[", b, "] is ", begin,
            "; it must be from ", previous, " to ", kv.page_ids.columns,
            ", not below the one before nor above the number of page_ids");
      previous = begin;
    }
  }
}

/// Whether every one of `ids` [count] lies in [0, last]: neither id nor last − id has
/// its sign bit set. Without a branch the loop becomes vector code: with pages of one
/// key there is an id for every key.
template <class Index>
[[nodiscard]] bool all_within(const Index* ids, std::int64_t count, Index last) {
  using Bits = std::make_unsigned_t<Index>;
  Bits seen = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Bits id = static_cast<Bits>(ids[i]);
    seen |= id | (static_cast<Bits>(last) - id);
  }
  return static_cast<Index>(seen) >= 0;
}

[[nodiscard]] inline bool all_within(const IndexView& ids, std::int64_t first, std::int64_t count,
                                     std::int64_t last) {
  if (ids.type == IndexType::kInt64) {
    return all_within(static_cast<const std::int64_t*>(ids.data) + first, count, last);
  }
  const std::int64_t most = std::numeric_limits<std::int32_t>::max();
  return all_within(static_cast<const std::int32_t*>(ids.data) + first, count,
                    static_cast<std::int32_t>(std::min(last, most)));
}

/// The pages of sequence `b` that hold `keys` lie in the cache. Host memory.
inline void check_pages(const KvView& kv, std::int64_t b, Range keys) {
  if (kv.layout == KvLayout::kContiguous || keys.empty()) return;
  const bool dense = kv.layout == KvLayout::kPagedDense;
  const IndexView& ids = dense ? kv.page_table : kv.page_ids;
  const std::int64_t row = dense ? b * ids.row_stride : kv.page_indptr[b];
  const std::int64_t first = keys.begin / kv.page_size();
  const std::int64_t end = (keys.end - 1) / kv.page_size() + 1;
  const std::int64_t num_pages = kv.k.shape[0];
  if (all_within(ids, row + first, end - first, num_pages - 1)) [[likely]]
    return;
  for (std::int64_t entry = first; entry < end; ++entry) {
    const std::int64_t id = ids[row + entry];  // a flat index: IndexView adds no row
    check(id >= 0 && id < num_pages, "entry ", entry, " of sequence ", b, " in ",
          dense ? "page_table" : "page_ids", " is ", id, "; it must be at least 0 and below ",
          num_pages, ", the pages of the cache");
  }
}

}  // namespace leanattn::core
