// Bringing rows of K and V from memory in time; per target.
//
// K and V are read in turns of a block, each in ascending order. Plain loads in
// that order train the processor's prefetchers; software prefetches of a few KB
// ahead bridge the time in which a core computes and asks for nothing. Either
// alone was slower (Zen 4, one thread, 64 KB blocks: loads 14, prefetches 13,
// both 16 to 18 GB/s, where plain reading gives 28).
#if defined(LEANATTN_CPU_STREAM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LEANATTN_CPU_STREAM_INL_H_
#undef LEANATTN_CPU_STREAM_INL_H_
#else
#define LEANATTN_CPU_STREAM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "cpu/lean_tile.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace leanattn::cpu {
namespace {
namespace HWY_NAMESPACE {

/// Bytes of a row stream that are asked for ahead of use.
inline constexpr std::int64_t kBytesAhead = 8192;
inline constexpr std::int64_t kCacheLine = 64;

/// The rows of a block as a stream from memory. Default: they were read before.
struct Stream {
  const void* const* rows = nullptr;  // [kBlock]
  std::int64_t bytes = 0;             // of a row
  std::int64_t keys_ahead = 0;

  Stream() = default;
  Stream(const void* const* block_rows, std::int64_t row_bytes)
      : rows(block_rows),
        bytes(row_bytes),
        keys_ahead(std::max<std::int64_t>(1, kBytesAhead / row_bytes)) {}

  HWY_INLINE HWY_ATTR void prefetch(std::int64_t j) const {
    const char* row = static_cast<const char*>(rows[std::min(j, kBlock - 1)]);
    for (std::int64_t byte = 0; byte < bytes; byte += kCacheLine) {
      __builtin_prefetch(row + byte, /*write=*/0, /*locality: second-level cache=*/2);
    }
  }

  /// Asks for the row that is due after row j.
  HWY_INLINE HWY_ATTR void run_ahead(std::int64_t j) const {
    if (bytes != 0) prefetch(j + keys_ahead);
  }

  /// Reads row j line by line, for code that will not read it in that order.
  HWY_INLINE HWY_ATTR void touch(std::int64_t j) const {
    if (bytes == 0) return;
    const volatile char* row = static_cast<const char*>(rows[j]);
    for (std::int64_t byte = 0; byte < bytes; byte += kCacheLine) (void)row[byte];
  }

  /// Asks for the first rows, before anything else is done.
  HWY_INLINE HWY_ATTR void start(Range lanes) const {
    const std::int64_t end = std::min(lanes.end, lanes.begin + keys_ahead);
    for (std::int64_t j = lanes.begin; j < end; ++j) prefetch(j);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
