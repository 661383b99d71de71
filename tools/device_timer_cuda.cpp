// device_timer.h with CUDA: recordings are graphs, times are those of events.
#include <cuda_runtime_api.h>

#include <type_traits>
#include <vector>

#include "device_timer.h"
#include "leanattn/error.h"

namespace leanattn::tools {
namespace {

void check_cuda(cudaError_t status) {
  check<Error>(status == cudaSuccess, "the device failed: ", cudaGetErrorString(status));
}

struct Destroy {
  void operator()(cudaStream_t stream) const { static_cast<void>(cudaStreamDestroy(stream)); }
  void operator()(cudaEvent_t event) const { static_cast<void>(cudaEventDestroy(event)); }
  void operator()(cudaGraph_t graph) const { static_cast<void>(cudaGraphDestroy(graph)); }
  void operator()(cudaGraphExec_t graph) const { static_cast<void>(cudaGraphExecDestroy(graph)); }
};
template <class Handle>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

Owner<cudaStream_t> make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Owner<cudaStream_t>(stream);
}

Owner<cudaEvent_t> make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event));
  return Owner<cudaEvent_t>(event);
}

int attribute(cudaDeviceAttr which) {
  int device = 0;
  int value = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

class CudaTimer final : public DeviceTimer {
 public:
  [[nodiscard]] int compute_capability() const override {
    return 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
           attribute(cudaDevAttrComputeCapabilityMinor);
  }

  [[nodiscard]] Stream stream() const override { return {stream_.get()}; }

  std::size_t record(const std::function<void()>& work) override {
    check_cuda(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal));
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_.get(), &graph));
      const Owner<cudaGraph_t> unfinished(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream_.get(), &graph));
    const Owner<cudaGraph_t> recorded(graph);
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaGraphInstantiate(&executable, graph, 0));
    recordings_.emplace_back(executable);
    check_cuda(cudaGraphUpload(executable, stream_.get()));
    return recordings_.size() - 1;
  }

  [[nodiscard]] double replay(std::size_t index) override {
    check_cuda(cudaEventRecord(begin_.get(), stream_.get()));
    check_cuda(cudaGraphLaunch(recordings_[index].get(), stream_.get()));
    check_cuda(cudaEventRecord(end_.get(), stream_.get()));
    check_cuda(cudaEventSynchronize(end_.get()));
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  void forget() override { recordings_.clear(); }

 private:
  Owner<cudaStream_t> stream_ = make_stream();
  Owner<cudaEvent_t> begin_ = make_event();
  Owner<cudaEvent_t> end_ = make_event();
  std::vector<Owner<cudaGraphExec_t>> recordings_;
};

}  // namespace

std::unique_ptr<DeviceTimer> device_timer() { return std::make_unique<CudaTimer>(); }

}  // namespace leanattn::tools
