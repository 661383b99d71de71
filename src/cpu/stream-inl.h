// Bringing rows of K and V from memory in time; per target.
//
// K and V are read in turns of a block, each in ascending order. Plain loads in
// that order train the processor's prefetchers; software prefetches a few KB ahead
// bridge the time in which a core computes and asks for nothing. Either alone is
// slower.
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

/// Bytes of a stream that are asked for ahead of use.
inline constexpr std::int64_t kBytesAhead = 8192;
inline constexpr std::int64_t kCacheLine = 64;

/// The rows of a block as a stream from memory. Default: they were read before.
struct Stream {
  const void* const* rows = nullptr;  // [kBlock]
  std::int64_t row_bytes = 0;
  std::int64_t keys_ahead = 0;
  std::int64_t distance = 0;  // bytes from a row to the one keys_ahead later; 0: paged

  /// `key_bytes`: from one key to the next, or 0 where pages interrupt that.
  static Stream of(const void* const* rows, std::int64_t row_bytes, std::int64_t key_bytes) {
    const std::int64_t keys = std::max<std::int64_t>(1, kBytesAhead / row_bytes);
    return {rows, row_bytes, keys, keys * key_bytes};
  }

  static HWY_INLINE HWY_ATTR void prefetch(const void* address, std::int64_t bytes) {
    const char* row = static_cast<const char*>(address);
    for (std::int64_t i = 0; i < bytes; i += kCacheLine) {
      __builtin_prefetch(row + i, /*write=*/0, /*locality: second-level cache=*/2);
    }
  }

  /// Asks for the row that is due keys_ahead after row j. In a contiguous cache it may
  /// belong to the next block, or to nothing: a prefetch cannot fault.
  HWY_INLINE HWY_ATTR void run_ahead(std::int64_t j) const {
    if (distance != 0) {
      prefetch(static_cast<const char*>(rows[j]) + distance, row_bytes);
    } else if (row_bytes != 0) {
      prefetch(rows[std::min(j + keys_ahead, kBlock - 1)], row_bytes);
    }
  }

  /// Reads row j line by line, for code that will not read it in that order.
  HWY_INLINE HWY_ATTR void touch(std::int64_t j) const {
    if (row_bytes == 0) return;
    const volatile char* row = static_cast<const char*>(rows[j]);
    for (std::int64_t i = 0; i < row_bytes; i += kCacheLine) (void)row[i];
  }

  /// Asks for the first rows of `lanes`.
  HWY_INLINE HWY_ATTR void start(Range lanes) const {
    const std::int64_t end = std::min(lanes.end, lanes.begin + keys_ahead);
    for (std::int64_t j = lanes.begin; j < end; ++j) prefetch(rows[j], row_bytes);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
