// The tensors of a case on the device: caches carved out of one big buffer of random
// values, and queries, outputs, lengths and page table beside them.
#pragma once

#include <cstdint>
#include <vector>

#include "case.h"
#include "handles.h"

namespace leanattn::bench {

/// Device memory full of random f16 or bf16 values.
class RandomBuffer {
 public:
  explicit RandomBuffer(std::int64_t bytes) : memory_(bytes) {}

  /// Makes the values `type`, in the order of `stream`; nothing if they are.
  void set_type(ElementType type, cudaStream_t stream);
  [[nodiscard]] std::int64_t size() const { return memory_.size(); }
  [[nodiscard]] std::byte* data() const { return memory_.data(); }

 private:
  DeviceBuffer memory_;
  ElementType type_ = ElementType::kBool;  // not filled yet
};

/// Every copy has a cache, queries and an output of its own; lengths and page table are
/// shared.
class CaseData {
 public:
  CaseData(const Case& shape, std::int64_t copies, const RandomBuffer& caches, cudaStream_t stream);

  [[nodiscard]] Arguments arguments(std::int64_t copy) const;
  /// Where a plain read of as many bytes as a call reads begins.
  [[nodiscard]] const std::byte* cache(std::int64_t copy) const;
  /// Elements of one copy's output.
  [[nodiscard]] std::int64_t out_elements() const;
  /// Makes every output NaN.
  void poison(cudaStream_t stream) const;

  /// Copy 0 in host memory, except `out`, which is `out`.
  class OnHost {
   public:
    OnHost(const CaseData& data, float* out);
    [[nodiscard]] const Arguments& arguments() const { return arguments_; }

   private:
    std::vector<std::byte> cache_, q_, lengths_, table_;
    Arguments arguments_;
  };

 private:
  Case shape_;
  const std::byte* caches_;
  std::int64_t q_bytes_;  // of one copy, as of its output
  DeviceBuffer q_, out_, lengths_, table_;
};

}  // namespace leanattn::bench
