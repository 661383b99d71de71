// Buffers between guard pages, by mmap.
#include "testing/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace leanattn::testing {

Buffer::Buffer(std::size_t size, std::size_t tail) : size_(size), tail_(tail) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t inner = (size + tail + page - 1) / page * page;
  mapped_ = inner + 2 * page;
  map_ = mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map_ == MAP_FAILED) throw std::bad_alloc();
  std::byte* begin = static_cast<std::byte*>(map_) + page;
  if (inner > 0 && mprotect(begin, inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(map_, mapped_);
    throw std::bad_alloc();
  }
  std::memset(begin, 0xff, inner);
  data_ = begin + inner - tail - size;
}

Buffer::~Buffer() {
  if (map_ != nullptr) munmap(map_, mapped_);
}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(map_, other.map_);
  std::swap(mapped_, other.mapped_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(tail_, other.tail_);
  return *this;
}

void Buffer::fill(Poison poison, ElementType type) const {
  if (poison != Poison::kInfinity || type == ElementType::kBool) {
    std::memset(data_, poison == Poison::kZero ? 0 : 0xff, size_);
    return;
  }
  if (type == ElementType::kFloat32) {
    std::fill_n(reinterpret_cast<std::uint32_t*>(data_), size_ / 4, 0x7f800000u);
  } else {
    const std::uint16_t infinity = type == ElementType::kFloat16 ? 0x7c00u : 0x7f80u;
    std::fill_n(reinterpret_cast<std::uint16_t*>(data_), size_ / 2, infinity);
  }
}

void Buffer::reset() const { std::memset(data_, 0xff, size_ + tail_); }

bool Buffer::tail_intact() const {
  return std::ranges::all_of(tail(), [](std::byte b) { return b == std::byte{0xff}; });
}

std::uint64_t Buffer::hash() const {
  std::uint64_t sum = size_;
  std::size_t i = 0;
  for (; i + 8 <= size_; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, data_ + i, 8);
    sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 29;
  }
  for (; i < size_; ++i) sum = (sum ^ static_cast<std::uint64_t>(data_[i])) * 0x100000001b3u;
  return sum;
}

}  // namespace leanattn::testing
