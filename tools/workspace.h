// The memory that a plan asks for.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include "leanattn/attention.h"

namespace leanattn::tools {

/// Aligned memory of an exact size; its content is undefined.
class Workspace {
 public:
  explicit Workspace(std::size_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(
            ::operator new (bytes, std::align_val_t{kWorkspaceAlignment}))) {}

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kWorkspaceAlignment});
    }
  };

  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace leanattn::tools
