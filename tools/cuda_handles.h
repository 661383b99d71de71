// CUDA's handles as owners, and `check_cuda`, which every call of the runtime goes
// through. Does not include leanattn/error.h, on which nvcc 13.0's front end (C++20, gcc
// 12) fails an assertion of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>

namespace leanattn::tools {

/// A call of the CUDA runtime that failed. Most leave the device unusable.
struct CudaError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws CudaError with the runtime's words unless `status` is success.
void check_cuda(cudaError_t status, const char* file = __builtin_FILE(),
                int line = __builtin_LINE());

/// Throws InvalidArgument with `sentence` unless `holds`. For .cu files.
void require(bool holds, const char* sentence);

/// Device memory from cudaMalloc. Its content is undefined.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::int64_t bytes, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE());

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t size() const { return size_; }

  template <class T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* data) const noexcept { static_cast<void>(cudaFree(data)); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::int64_t size_ = 0;
};

struct DestroyHandle {
  void operator()(cudaStream_t stream) const noexcept {
    static_cast<void>(cudaStreamDestroy(stream));
  }
  void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
  void operator()(cudaGraph_t graph) const noexcept { static_cast<void>(cudaGraphDestroy(graph)); }
  void operator()(cudaGraphExec_t graph) const noexcept {
    static_cast<void>(cudaGraphExecDestroy(graph));
  }
};
template <class Handle>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyHandle>;

/// A stream that does not wait for the default stream.
[[nodiscard]] Owner<cudaStream_t> make_stream();
[[nodiscard]] Owner<cudaEvent_t> make_event();

/// The work that `body` queues in `stream`, as a graph that is on the device, ready to
/// be launched.
[[nodiscard]] Owner<cudaGraphExec_t> capture(cudaStream_t stream,
                                             const std::function<void()>& body);

[[nodiscard]] int device_attribute(cudaDeviceAttr attribute);

}  // namespace leanattn::tools
