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

/// Rows of lanes [begin, end) of a paged cache.
void find_paged(const Segment& segment, std::int64_t first_key, Range lanes, BlockRows& rows) {
  const KvView& kv = segment.arguments->kv;
  const ByteStrides k(kv.k, segment.kv_head);
  const ByteStrides v(kv.v, segment.kv_head);
  const std::int64_t page_size = kv.page_size();
  std::int64_t slot = (first_key + lanes.begin) / page_size;
  std::int64_t in_page = (first_key + lanes.begin) % page_size;
  for (std::int64_t j = lanes.begin; j < lanes.end; ++slot, in_page = 0) {
    const std::int64_t count = std::min(page_size - in_page, lanes.end - j);
    const std::int64_t page = page_of(kv, segment.sequence, slot);
    find_run(k, page, in_page, count, rows.k + j);
    find_run(v, page, in_page, count, rows.v + j);
    j += count;
  }
}

/// Rows of lanes [begin, end) of a contiguous cache.
void find_contiguous(const Segment& segment, std::int64_t first_key, Range lanes, BlockRows& rows) {
  const KvView& kv = segment.arguments->kv;
  const std::int64_t row =
      kv.cache_rows.given() ? kv.cache_rows[segment.sequence] : segment.sequence;
  const ByteStrides k(kv.k, segment.kv_head);
  const ByteStrides v(kv.v, segment.kv_head);
  find_run(k, row, first_key + lanes.begin, lanes.size(), rows.k + lanes.begin);
  find_run(v, row, first_key + lanes.begin, lanes.size(), rows.v + lanes.begin);
}

}  // namespace

std::int64_t find_rows(const Segment& segment, std::int64_t first_key, Range visible,
                       BlockRows& rows) {
  Range lanes = visible;
  if (segment.arguments->kv.layout == KvLayout::kContiguous) {
    find_contiguous(segment, first_key, lanes, rows);
  } else {
    lanes.end = std::min(visible.end + kRowsAhead, segment.keys.end - first_key);
    find_paged(segment, first_key, lanes, rows);
  }
  // Complete the first and the last group of lanes.
  const std::int64_t begin = visible.begin / kLaneGroup * kLaneGroup;
  const std::int64_t end = ceil_div(visible.end, kLaneGroup) * kLaneGroup;
  std::fill(rows.k + begin, rows.k + visible.begin, rows.k[visible.begin]);
  if (lanes.end < end) std::fill(rows.k + lanes.end, rows.k + end, rows.k[lanes.end - 1]);
  return lanes.end;
}

}  // namespace leanattn::cpu
