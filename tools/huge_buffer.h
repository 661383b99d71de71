// Memory for benchmarks: page-aligned, on huge pages where the system gives them.
#pragma once

#include <cstddef>
#include <span>

namespace leanattn::tools {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  /// `bytes` of zeros, not touched yet. Throws std::bad_alloc.
  explicit HugeBuffer(std::size_t bytes);
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }

  /// Fills the buffer with copies of `pattern`, with `num_threads` threads, each of
  /// which is the first to touch its part.
  void fill(std::span<const std::byte> pattern, int num_threads) const;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace leanattn::tools
