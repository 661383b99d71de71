// See read_bandwidth.h. Compiled once per instruction set by Highway, which picks
// one at run time.
#include "read_bandwidth.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "read_bandwidth.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first
#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace leanattn::tools::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Reads [data, data + bytes), aligned to 8 bytes, as kStreams equal pieces side by side,
// prefetching kAhead bytes ahead (0: not at all). Returns a value that depends on every byte.
template <std::size_t kStreams, std::size_t kAhead>
std::uint64_t read(const std::uint8_t* HWY_RESTRICT data, std::size_t bytes) {
  const hn::ScalableTag<std::uint64_t> d;
  const std::size_t vector_bytes = hn::Lanes(d) * sizeof(std::uint64_t);
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kStep = 8 * kLine;  // bytes of a stream per turn
  const std::size_t piece = bytes / kStreams / kStep * kStep;
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  for (std::size_t i = 0; i < piece; i += kStep) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const std::uint8_t* from = data + stream * piece + i;
      if constexpr (kAhead > 0) {
        for (std::size_t line = 0; line < kStep; line += kLine) {
          hwy::Prefetch(from + kAhead + line);
        }
      }
      for (std::size_t at = 0; at < kStep; at += 2 * vector_bytes) {
        const auto* words = reinterpret_cast<const std::uint64_t*>(from + at);
        even = hn::Xor(even, hn::LoadU(d, words));
        odd = hn::Xor(odd, hn::LoadU(d, words + hn::Lanes(d)));
      }
    }
  }
  std::uint64_t rest = 0;
  for (std::size_t i = kStreams * piece; i < bytes; ++i) rest ^= data[i];
  return rest ^ hn::GetLane(hn::SumOfLanes(d, hn::Xor(even, odd)));
}

using ReadFunction = std::uint64_t (*)(const std::uint8_t* HWY_RESTRICT, std::size_t);

constexpr ReadFunction kReadFunctions[] = {read<1, 0>,    read<1, 512>, read<1, 2048>,
                                           read<1, 8192>, read<2, 0>,   read<4, 1024>};

std::uint64_t read_way(const std::uint8_t* data, std::size_t bytes, std::size_t way) {
  return kReadFunctions[way](data, bytes);
}

}  // namespace leanattn::tools::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <vector>

#include "leanattn/partition.h"

namespace leanattn::tools {
namespace {

HWY_EXPORT(read_way);

constexpr std::string_view kWays[] = {"plain loads",          "prefetch 512 B ahead",
                                      "prefetch 2 KiB ahead", "prefetch 8 KiB ahead",
                                      "two streams",          "four streams, prefetch 1 KiB ahead"};

// Where results go, so that no compiler drops the reading.
std::atomic<std::uint64_t> sink{0};

// Bytes [share.begin, share.end) of the parts laid end to end.
std::uint64_t read_share(std::span<const std::span<const std::byte>> parts, Range share,
                         std::size_t way) {
  std::uint64_t value = 0;
  std::int64_t before = 0;
  for (const auto& part : parts) {
    const auto size = static_cast<std::int64_t>(part.size());
    const Range mine = intersect(share, {before, before + size});
    if (!mine.empty()) {
      const auto* data = reinterpret_cast<const std::uint8_t*>(part.data()) + (mine.begin - before);
      value ^= HWY_DYNAMIC_DISPATCH(read_way)(data, static_cast<std::size_t>(mine.size()), way);
    }
    before += size;
  }
  return value;
}

}  // namespace

std::span<const std::string_view> read_ways() { return kWays; }

double read_seconds(std::span<const std::span<const std::byte>> parts, int num_threads,
                    std::size_t way) {
  constexpr std::int64_t kUnit = 4096;  // shares are cut at multiples of this, in bytes
  std::int64_t total = 0;
  for (const auto& part : parts) total += static_cast<std::int64_t>(part.size());
  const std::int64_t units = ceil_div(total, kUnit);
  const auto start = std::chrono::steady_clock::now();
#pragma omp parallel for num_threads(num_threads) schedule(static, 1)
  for (int thread = 0; thread < num_threads; ++thread) {
    const Range share = even_share<std::int64_t>(units, num_threads, thread);
    const Range bytes{share.begin * kUnit, std::min(share.end * kUnit, total)};
    sink.fetch_xor(read_share(parts, bytes, way), std::memory_order_relaxed);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

ReadBandwidth measure_read_bandwidth(std::span<const std::byte> bytes, int num_threads,
                                     int num_rounds) {
  const std::array<std::span<const std::byte>, 1> parts{bytes};
  std::vector<std::vector<double>> seconds(std::size(kWays));
  for (int round = 0; round < num_rounds; ++round) {
    for (std::size_t way = 0; way < std::size(kWays); ++way) {
      seconds[way].push_back(read_seconds(parts, num_threads, way));
    }
  }
  ReadBandwidth best;
  for (std::size_t way = 0; way < std::size(kWays); ++way) {
    auto& times = seconds[way];
    std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
    const double rate = static_cast<double>(bytes.size()) / times[times.size() / 2];
    if (rate > best.bytes_per_second) best = {rate, kWays[way]};
  }
  return best;
}

}  // namespace leanattn::tools

#endif  // HWY_ONCE
