// A small random number generator: the same draws from the same seed on every
// machine and with every standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace leanattn::testing {

class RandomBits {
 public:
  explicit RandomBits(std::uint64_t seed) : state_(seed) {}

  /// 64 random bits (splitmix64).
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in [low, high], both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const std::uint64_t span = static_cast<std::uint64_t>(high - low) + 1;
    return low + static_cast<std::int64_t>(next() % span);
  }

  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  bool chance(double probability) { return uniform() < probability; }

  /// In [low, high], each power of two as likely as the next; low ≥ 1.
  std::int64_t log_between(std::int64_t low, std::int64_t high) {
    if (high <= low) return low;
    const double span = std::log(static_cast<double>(high + 1) / static_cast<double>(low));
    const auto drawn =
        static_cast<std::int64_t>(static_cast<double>(low) * std::exp(uniform() * span));
    return drawn > high ? high : drawn;
  }

  /// Nearly normal, mean 0, variance 1, within ±3.5: the sum of four uniform numbers.
  float normal() {
    const std::uint64_t bits = next();
    const auto sum = static_cast<std::int32_t>((bits & 0xffffu) + ((bits >> 16) & 0xffffu) +
                                               ((bits >> 32) & 0xffffu) + (bits >> 48));
    return static_cast<float>(sum - 131070) * 2.6430e-5f;  // √3 / 65536
  }

  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[next() % values.size()];
  }

  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[next() % values.size()];
  }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[next() % i]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace leanattn::testing
