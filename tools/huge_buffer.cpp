// See huge_buffer.h.
#include "huge_buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace leanattn::tools {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

HugeBuffer::HugeBuffer(std::size_t bytes)
    : size_((std::max<std::size_t>(bytes, 1) + kHugePage - 1) / kHugePage * kHugePage) {
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  ::madvise(memory, size_, MADV_HUGEPAGE);  // advice: without it all works, more slowly
  data_ = static_cast<std::byte*>(memory);
}

HugeBuffer::~HugeBuffer() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void HugeBuffer::fill(std::span<const std::byte> pattern, int num_threads) const {
  const std::size_t step = pattern.size();
  const auto blocks = static_cast<std::int64_t>((size_ + step - 1) / step);
#pragma omp parallel for num_threads(num_threads) schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::size_t begin = static_cast<std::size_t>(block) * step;
    std::memcpy(data_ + begin, pattern.data(), std::min(step, size_ - begin));
  }
}

}  // namespace leanattn::tools
