// Writing new keys and values at the end of each sequence of a cache. Everything is
// checked before the first byte is written; offsets are 64-bit throughout.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/kv_access.h"
#include "core/kv_checks.h"
#include "core/tensor_checks.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "leanattn/half.h"
#include "leanattn/tensor.h"

namespace leanattn {
namespace {

/// Where the new keys of one sequence lie in k and v: [outer, first], …, and how
/// many they are.
struct NewKeys {
  std::int64_t outer;
  std::int64_t first;
  std::int64_t count;
};

NewKeys new_keys_of(const TensorView<4>& k, const IndexView& offsets, std::int64_t b) {
  if (!offsets.given()) return {b, 0, k.shape[1]};
  return {0, offsets[b], offsets[b + 1] - offsets[b]};
}

void check_new_tensor(std::string_view name, const TensorView<4>& view) {
  core::check_floating(name, view.type);
  core::check_device(name, view.device, {});
  core::check_rows_contiguous(name, view);
  core::check_data(name, view);
}

void check_new_keys(const TensorView<4>& k, const TensorView<4>& v, const KvView& cache,
                    const IndexView& offsets, std::int64_t batch) {
  check_new_tensor("k", k);
  check_new_tensor("v", v);
  const std::int64_t outer = offsets.given() ? 1 : batch;
  core::check_shape("k", k, {outer, k.shape[1], cache.k.shape[2], cache.k.shape[3]});
  core::check_shape("v", v, {outer, k.shape[1], cache.v.shape[2], cache.v.shape[3]});
  if (!offsets.given()) return;
  core::check_index_vector("offsets", offsets, batch + 1, {});
  core::check_offsets("offsets", offsets, k.shape[1]);
}

/// Every sequence has room for its new keys, in pages of the cache.
void check_room(const TensorView<4>& k, const KvView& cache, const IndexView& offsets,
                const IndexView& lengths, std::int64_t batch) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t n = lengths[b];
    const std::int64_t added = new_keys_of(k, offsets, b).count;
    const std::int64_t capacity = core::capacity_of(cache, b);
    check(n >= 0 && n <= capacity, "lengths[", b, "] is ", n, "; it must be from 0 to ", capacity,
          ", the keys that sequence ", b, " has room for");
    check(added <= capacity - n, "sequence ", b, " has ", n, " keys and is given ", added,
          " more; together they must be at most ", capacity, ", the keys it has room for");
    core::check_pages(cache, b, {n, n + added});
  }
}

/// Copies `count` elements; equal types keep every bit.
void copy_row(const void* from, ElementType from_type, void* to, ElementType to_type,
              std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count * size_of(to_type)));
    return;
  }
  for (std::int64_t d = 0; d < count; ++d) {
    store_float(to, to_type, d, load_float(from, from_type, d));
  }
}

/// Copies the rows of all heads of `from` at [outer, inner] to `slot` of `to`.
void copy_heads(const TensorView<4>& from, std::int64_t outer, std::int64_t inner,
                const MutableTensorView<4>& to, const core::KvSlot& slot) {
  for (std::int64_t head = 0; head < to.shape[2]; ++head) {
    copy_row(core::row_pointer(from, {outer, inner}, head), from.type,
             core::row_pointer(to, slot, head), to.type, to.shape[3]);
  }
}

}  // namespace

void append_kv(const TensorView<4>& k, const TensorView<4>& v, const IndexView& offsets,
               const IndexView& lengths, const MutableKvView& cache) {
  const KvView kv = as_const(cache);
  const std::int64_t batch =
      offsets.given() ? std::max<std::int64_t>(offsets.columns - 1, 0) : k.shape[0];
  check_new_keys(k, v, kv, offsets, batch);
  core::check_kv(kv, batch, {});
  core::check_writable("k of the cache", cache.k);
  core::check_writable("v of the cache", cache.v);
  core::check_index_vector("lengths", lengths, batch, {});
  core::check_table_entries(kv, batch);
  check_room(k, kv, offsets, lengths, batch);

  for (std::int64_t b = 0; b < batch; ++b) {
    const NewKeys keys = new_keys_of(k, offsets, b);
    for (std::int64_t i = 0; i < keys.count; ++i) {
      const core::KvSlot slot = core::slot_of(cache, b, lengths[b] + i);
      copy_heads(k, keys.outer, keys.first + i, cache.k, slot);
      copy_heads(v, keys.outer, keys.first + i, cache.v, slot);
    }
  }
}

}  // namespace leanattn
