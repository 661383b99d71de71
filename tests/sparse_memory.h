// Address space without memory behind it, for offsets past 2^31 and 2^32: reads as 0
// until written, and takes no memory where it is not written.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "leanattn/half.h"

namespace leanattn::testing {

class SparseMemory {
 public:
  explicit SparseMemory(std::int64_t bytes)
      : size_(static_cast<std::size_t>(bytes)),
        data_(mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~SparseMemory() { munmap(data_, size_); }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  [[nodiscard]] void* data() const { return data_; }

  /// Sets elements [first, first + count).
  void set(ElementType type, std::int64_t first, std::int64_t count, float value) const {
    for (std::int64_t i = first; i < first + count; ++i) store_float(data_, type, i, value);
  }

 private:
  std::size_t size_;
  void* data_;
};

}  // namespace leanattn::testing
