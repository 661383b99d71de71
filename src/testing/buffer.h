// Memory between two pages that nobody may touch: a read or write past its end
// faults at once, without a sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "leanattn/tensor.h"

namespace leanattn::testing {

/// What unused memory is filled with.
enum class Poison : std::uint8_t { kNaN, kInfinity, kZero };

class Buffer {
 public:
  Buffer() = default;
  /// `size` bytes, filled with 0xFF (NaN in every floating type), followed by
  /// `tail` bytes of the same and then by a page without access.
  explicit Buffer(std::size_t size, std::size_t tail = 0);
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  /// The bytes between the end and the page without access.
  [[nodiscard]] std::span<const std::byte> tail() const { return {data_ + size_, tail_}; }

  /// Fills the buffer with NaN, +Inf or 0 of `type`.
  void fill(Poison poison, ElementType type) const;
  /// Fills buffer and tail with 0xFF again.
  void reset() const;
  /// Whether the tail is as it was made.
  [[nodiscard]] bool tail_intact() const;
  /// A hash of the content.
  [[nodiscard]] std::uint64_t hash() const;

 private:
  void* map_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t tail_ = 0;
};

}  // namespace leanattn::testing
