// A decode call in bf16 that was born on the device: random queries, keys and values, a
// contiguous or paged cache, results that begin as NaN.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda_support.h"

namespace leanattn::testing {

struct CallShape {
  std::int64_t num_q_heads = 8;
  std::int64_t num_kv_heads = 2;
  std::int64_t head_dim = 128;
  std::int64_t capacity = 1024;  // keys of a sequence
  std::int64_t page_size = 0;    // 0: contiguous; else capacity is a multiple of it
  std::uint64_t seed = 1;
};

class DeviceCall {
 public:
  /// One query per sequence. Paged: each sequence has pages of its own, in random order.
  DeviceCall(const CallShape& shape, const std::vector<std::int32_t>& lengths);

  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  [[nodiscard]] Arguments& arguments() { return arguments_; }
  [[nodiscard]] std::int64_t batch() const { return batch_; }
  [[nodiscard]] const DeviceArray& q() const { return q_; }
  [[nodiscard]] const DeviceArray& out() const { return out_; }
  [[nodiscard]] const DeviceArray& lse() const { return lse_; }

  /// Writes the lengths in the order of `stream`; `lengths` must live until that is done.
  void queue_lengths(const std::vector<std::int32_t>& lengths, const CudaStream& stream) const;
  /// Likewise, and waits until it is.
  void set_lengths(const std::vector<std::int32_t>& lengths, const CudaStream& stream) const;
  /// Makes all results NaN, in the order of `stream`.
  void poison(const CudaStream& stream) const;
  /// The bytes of out and lse, once `stream` is done.
  [[nodiscard]] std::vector<std::byte> results(const CudaStream& stream) const;
  /// Poisons, runs and reads the results.
  [[nodiscard]] std::vector<std::byte> run_once(const Plan& plan, const Workspace& workspace,
                                                const CudaStream& stream) const;

 private:
  void place_cache(const CallShape& shape);

  std::int64_t batch_;
  DeviceArray q_, k_, v_, out_, lse_, lengths_, page_table_;
  Arguments arguments_;
};

/// `count` random bf16 numbers, nearly normal; the same for the same seed. Where there
/// are more than a million they repeat, at a period that is prime.
[[nodiscard]] DeviceArray random_bf16(std::int64_t count, std::uint64_t seed);

/// A view of bf16 memory of the device.
template <std::size_t kRank, class Pointer>
[[nodiscard]] auto device_view(Pointer data, const std::array<std::int64_t, kRank>& shape,
                               ElementType type = ElementType::kBFloat16) {
  auto view = contiguous<static_cast<int>(kRank), Pointer>(data, type, shape);
  view.device = {Device::Kind::kDevice, 0};
  return view;
}

/// `view`, said to lie on the device.
[[nodiscard]] inline IndexView on_device(IndexView view) {
  view.device = {Device::Kind::kDevice, 0};
  return view;
}

}  // namespace leanattn::testing
