#include "cpu/block_rows.h"

#include <algorithm>

namespace leanattn::cpu {
namespace {

/// One tensor of the cache, in bytes.
struct ByteStrides {
  const char* head = nullptr;  // element [0, 0, kv_head, 0]
  std::int64_t page = 0;
  std::int64_t key = 0;

  ByteStrides(const TensorView<4>& tensor, std::int64_t kv_head)
      : head(static_cast<const char*>(tensor.data) +
             kv_head * tensor.strides[2] * size_of(tensor.type)),
        page(tensor.strides[0] * size_of(tensor.type)),
        key(tensor.strides[1] * size_of(tensor.type)) {}
};

std::int64_t page_of(const KvView& kv, std::int64_t sequence, std::int64_t slot) {
  if (kv.layout == KvLayout::kPagedDense) return kv.page_table.at(sequence, slot);
  return kv.page_ids[kv.page_indptr[sequence] + slot];
}

/// `count` keys that follow each other in one page, or in a contiguous cache.
void find_run(const ByteStrides& tensor, std::int64_t page, std::int64_t in_page,
              std::int64_t count, const void** rows) {
  const char* first = tensor.head + page * tensor.page + in_page * tensor.key;
  for (std::int64_t i = 0; i < count; ++i) rows[i] = first + i * tensor.key;
}

}  // namespace

void find_rows(const Segment& segment, std::int64_t first_key, Range visible, BlockRows& rows) {
  const KvView& kv = segment.arguments->kv;
  const ByteStrides k(kv.k, segment.kv_head);
  const ByteStrides v(kv.v, segment.kv_head);
  if (kv.layout == KvLayout::kContiguous) {
    const std::int64_t row =
        kv.cache_rows.given() ? kv.cache_rows[segment.sequence] : segment.sequence;
    find_run(k, row, first_key + visible.begin, visible.size(), rows.k + visible.begin);
    find_run(v, row, first_key + visible.begin, visible.size(), rows.v + visible.begin);
  } else {
    const std::int64_t page_size = kv.page_size();
    std::int64_t j = visible.begin;
    std::int64_t slot = (first_key + j) / page_size;
    std::int64_t in_page = (first_key + j) % page_size;
    while (j < visible.end) {
      const std::int64_t count = std::min(page_size - in_page, visible.end - j);
      const std::int64_t page = page_of(kv, segment.sequence, slot);
      find_run(k, page, in_page, count, rows.k + j);
      find_run(v, page, in_page, count, rows.v + j);
      j += count;
      ++slot;
      in_page = 0;
    }
  }
  // Complete the first and the last group of lanes.
  const std::int64_t begin = visible.begin / kLaneGroup * kLaneGroup;
  const std::int64_t end = ceil_div(visible.end, kLaneGroup) * kLaneGroup;
  std::fill(rows.k + begin, rows.k + visible.begin, rows.k[visible.begin]);
  std::fill(rows.k + visible.end, rows.k + end, rows.k[visible.end - 1]);
}

}  // namespace leanattn::cpu
