// How fast this machine reads memory: the floor of decode attention, which reads
// every key and value once. Several ways of reading compete; the best is the floor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace leanattn::tools {

/// The ways of reading, by name: plain wide loads, with software prefetch, several
/// streams at once. All with the widest vectors of this machine.
[[nodiscard]] std::span<const std::string_view> read_ways();

/// Reads every byte of `parts` once in way `way`, dealt evenly to `num_threads`
/// threads. Returns the seconds it took.
[[nodiscard]] double read_seconds(std::span<const std::span<const std::byte>> parts,
                                  int num_threads, std::size_t way);

struct ReadBandwidth {
  double bytes_per_second = 0;  // of the best way: median over rounds
  std::string_view way;
};

/// Reads `bytes`, which should be far larger than the caches, `num_rounds` times in
/// every way.
[[nodiscard]] ReadBandwidth measure_read_bandwidth(std::span<const std::byte> bytes,
                                                   int num_threads, int num_rounds);

}  // namespace leanattn::tools
