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
  const void* const* rows = nullptr;  // by lane
  std::int64_t row_bytes = 0;
  std::int64_t distance = 0;    // bytes from a row to the one to ask for; 0: see keys_ahead
  std::int64_t keys_ahead = 0;  // asks for rows[j + keys_ahead], where pages interrupt
  std::int64_t end = 0;         // of the lanes whose rows are known

  static HWY_INLINE HWY_ATTR void prefetch(const void* address, std::int64_t bytes) {
    const char* row = static_cast<const char*>(address);
    for (std::int64_t i = 0; i < bytes; i += kCacheLine) {
      __builtin_prefetch(row + i, /*write=*/0, /*locality: second-level cache=*/2);
    }
  }

  /// Asks for a row that is due later than row j. By distance it may be one of the next
  /// block, or nothing at all: a prefetch cannot fault.
  HWY_INLINE HWY_ATTR void run_ahead(std::int64_t j) const {
    if (distance != 0) {
      prefetch(static_cast<const char*>(rows[j]) + distance, row_bytes);
    } else if (keys_ahead != 0) {
      prefetch(rows[std::min(j + keys_ahead, end - 1)], row_bytes);
    }
  }

  /// Reads row j line by line, for code that will not read it in that order.
  HWY_INLINE HWY_ATTR void touch(std::int64_t j) const {
    if (row_bytes == 0) return;
    const volatile char* row = static_cast<const char*>(rows[j]);
    for (std::int64_t i = 0; i < row_bytes; i += kCacheLine) (void)row[i];
  }

  /// Asks for the first rows, up to kBytesAhead.
  HWY_INLINE HWY_ATTR void start(std::int64_t begin) const {
    const std::int64_t last =
        std::min(end, begin + std::max<std::int64_t>(1, kBytesAhead / row_bytes));
    for (std::int64_t j = begin; j < last; ++j) prefetch(rows[j], row_bytes);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
