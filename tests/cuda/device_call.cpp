#include "device_call.h"

#include <algorithm>
#include <numeric>

#include "leanattn/half.h"
#include "testing/random_bits.h"

namespace leanattn::testing {

DeviceArray random_bf16(std::int64_t count, std::uint64_t seed) {
  constexpr std::int64_t kPeriod = 1'000'003;
  RandomBits bits(seed);
  std::vector<std::uint16_t> block(static_cast<std::size_t>(std::min(count, kPeriod)));
  for (std::size_t i = 0; i < block.size(); ++i) {
    store_float(block.data(), ElementType::kBFloat16, static_cast<std::int64_t>(i), bits.normal());
  }
  DeviceArray array(static_cast<std::size_t>(count) * 2);
  const std::size_t block_bytes = block.size() * 2;
  for (std::size_t done = 0; done < array.size(); done += block_bytes) {
    const std::size_t bytes = std::min(block_bytes, array.size() - done);
    const bool first = done == 0;
    check_cuda(cudaMemcpy(array.data() + done,
                          first ? static_cast<const void*>(block.data()) : array.data(), bytes,
                          first ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice));
  }
  check_cuda(cudaDeviceSynchronize());
  return array;
}

DeviceCall::DeviceCall(const CallShape& shape, const std::vector<std::int32_t>& lengths)
    : batch_(static_cast<std::int64_t>(lengths.size())), lengths_(lengths) {
  const std::array<std::int64_t, 4> rows{batch_, 1, shape.num_q_heads, shape.head_dim};
  const std::int64_t elements = batch_ * shape.num_q_heads * shape.head_dim;
  q_ = random_bf16(elements, shape.seed);
  out_ = DeviceArray(static_cast<std::size_t>(elements) * 2);
  lse_ = DeviceArray(static_cast<std::size_t>(batch_ * shape.num_q_heads) * 4);
  arguments_.q = device_view<4, const void*>(q_.data(), rows);
  arguments_.out = device_view<4, void*>(out_.data(), rows);
  arguments_.lse =
      device_view<3, void*>(lse_.data(), {batch_, 1, shape.num_q_heads}, ElementType::kFloat32);
  arguments_.lengths =
      on_device(indices(reinterpret_cast<const std::int32_t*>(lengths_.data()), batch_));
  place_cache(shape);
}

void DeviceCall::place_cache(const CallShape& shape) {
  const bool paged = shape.page_size > 0;
  const std::int64_t slots = paged ? shape.page_size : shape.capacity;
  const std::int64_t width = shape.capacity / slots;
  const std::int64_t elements = batch_ * shape.capacity * shape.num_kv_heads * shape.head_dim;
  const std::array<std::int64_t, 4> cache{batch_ * width, slots, shape.num_kv_heads,
                                          shape.head_dim};
  k_ = random_bf16(elements, shape.seed + 1000);
  v_ = random_bf16(elements, shape.seed + 2000);
  arguments_.kv.k = device_view<4, const void*>(k_.data(), cache);
  arguments_.kv.v = device_view<4, const void*>(v_.data(), cache);
  if (!paged) return;
  std::vector<std::int32_t> pages(static_cast<std::size_t>(batch_ * width));
  std::iota(pages.begin(), pages.end(), 0);
  RandomBits(shape.seed).shuffle(pages);
  page_table_ = DeviceArray(pages);
  arguments_.kv.layout = KvLayout::kPagedDense;
  arguments_.kv.page_table = on_device(
      index_table(reinterpret_cast<const std::int32_t*>(page_table_.data()), batch_, width));
}

void DeviceCall::queue_lengths(const std::vector<std::int32_t>& lengths,
                               const CudaStream& stream) const {
  check_cuda(cudaMemcpyAsync(lengths_.data(), lengths.data(), lengths_.size(),
                             cudaMemcpyHostToDevice, stream.get()));
}

void DeviceCall::set_lengths(const std::vector<std::int32_t>& lengths,
                             const CudaStream& stream) const {
  queue_lengths(lengths, stream);
  stream.wait();
}

void DeviceCall::poison(const CudaStream& stream) const {
  out_.fill(0xff, stream.get());
  lse_.fill(0xff, stream.get());
}

std::vector<std::byte> DeviceCall::results(const CudaStream& stream) const {
  std::vector<std::byte> bytes = out_.content(stream.get());
  const std::vector<std::byte> lse = lse_.content(stream.get());
  bytes.insert(bytes.end(), lse.begin(), lse.end());
  return bytes;
}

std::vector<std::byte> DeviceCall::run_once(const Plan& plan, const Workspace& workspace,
                                            const CudaStream& stream) const {
  poison(stream);
  run(plan, arguments_, workspace.bytes(), stream.view());
  return results(stream);
}

}  // namespace leanattn::testing
