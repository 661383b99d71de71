// The CUDA runtime as the tests need it: errors thrown, memory and streams that free
// themselves, and the fixture that skips where there is no device.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "leanattn/attention.h"

namespace leanattn::testing {

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

inline const Backend& cuda() { return backend("cuda"); }

/// Memory of the current device. Movable. Freeing it waits for the device.
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(std::size_t bytes) : size_(bytes) {
    check_cuda(cudaMalloc(&data_, bytes > 0 ? bytes : 1));
  }
  template <class T>
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size() * sizeof(T)) {
    check_cuda(cudaMemcpy(data_, values.data(), size_, cudaMemcpyHostToDevice));
    // A copy of pageable memory may still be under way; streams here do not wait for it.
    check_cuda(cudaStreamSynchronize(nullptr));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data(), size_}; }

  void fill(int byte, cudaStream_t stream) const {
    check_cuda(cudaMemsetAsync(data_, byte, size_, stream));
  }
  /// The content, once the work in `stream` is done.
  template <class T = std::byte>
  [[nodiscard]] std::vector<T> content(cudaStream_t stream) const {
    std::vector<T> values(size_ / sizeof(T));
    check_cuda(cudaMemcpyAsync(values.data(), data_, size_, cudaMemcpyDeviceToHost, stream));
    check_cuda(cudaStreamSynchronize(stream));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A stream that does not wait for the default stream.
class CudaStream {
 public:
  CudaStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  [[nodiscard]] Stream view(Overlap overlap = Overlap::kNone) const { return {stream_, overlap}; }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// A workspace of exactly what a plan asks for, full of 0xFF before it is initialised.
class Workspace {
 public:
  Workspace(const Plan& plan, const CudaStream& stream) : memory_(plan.workspace_bytes) {
    memory_.fill(0xff, stream.get());
    initialise(plan, bytes(), stream.view());
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return memory_.bytes(); }

 private:
  DeviceArray memory_;
};

/// Whether the device has room for `bytes` and some more.
inline bool device_has(std::size_t bytes) {
  std::size_t unused = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&unused, &total));
  return unused > bytes + (std::size_t{1} << 29);
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string unavailable = cuda().unavailable();
    if (!unavailable.empty()) GTEST_SKIP() << unavailable;
    // A build may have few of the kernels; these tests use one.
    Problem problem;
    problem.num_q_heads = problem.num_kv_heads = 1;
    problem.head_dim = problem.v_head_dim = 128;
    problem.q_type = problem.k_type = problem.v_type = problem.out_type = ElementType::kBFloat16;
    problem.device = {Device::Kind::kDevice, 0};
    const Support support = cuda().supports(problem);
    if (!support) GTEST_SKIP() << support.why_not;
  }
};

/// one_tile; fixed_split 1, 3 and 7; stream_k over the machine's workers and over 7; each
/// with and without batch_invariant.
inline std::vector<PlanOptions> cuda_plans() {
  std::vector<PlanOptions> all;
  for (const bool batch_invariant : {false, true}) {
    const auto add = [&](PartitionChoice partition, std::int64_t splits, std::int64_t workers) {
      PlanOptions& options = all.emplace_back();
      options.backend = "cuda";
      options.partition = partition;
      options.num_splits = splits;
      options.num_workers = workers;
      options.batch_invariant = batch_invariant;
    };
    add(PartitionChoice::kAuto, 0, 0);
    add(PartitionChoice::kOneTile, 0, 0);
    for (const std::int64_t splits : {1, 3, 7}) add(PartitionChoice::kFixedSplit, splits, 0);
    for (const std::int64_t workers : {0, 7}) add(PartitionChoice::kStreamK, 0, workers);
  }
  return all;
}

}  // namespace leanattn::testing
