// device_timer.h with CUDA: recordings are graphs, times are those of events.
#include <vector>

#include "cuda_handles.h"
#include "device_timer.h"

namespace leanattn::tools {
namespace {

class CudaTimer final : public DeviceTimer {
 public:
  [[nodiscard]] int compute_capability() const override {
    return 10 * device_attribute(cudaDevAttrComputeCapabilityMajor) +
           device_attribute(cudaDevAttrComputeCapabilityMinor);
  }

  [[nodiscard]] Stream stream() const override { return {stream_.get()}; }

  std::size_t record(const std::function<void()>& work) override {
    recordings_.push_back(capture(stream_.get(), work));
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
