// See cuda_handles.h.
#include "cuda_handles.h"

#include "leanattn/error.h"

namespace leanattn::tools {

void check_cuda(cudaError_t status, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw CudaError(concat(cudaGetErrorName(status), ": ", cudaGetErrorString(status), " (", file,
                         ":", line, ")"));
}

void require(bool holds, const char* sentence) { check(holds, sentence); }

DeviceBuffer::DeviceBuffer(std::int64_t bytes, const char* file, int line) : size_(bytes) {
  void* data = nullptr;
  if (bytes > 0) check_cuda(cudaMalloc(&data, static_cast<std::size_t>(bytes)), file, line);
  data_.reset(static_cast<std::byte*>(data));
}

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

Owner<cudaGraphExec_t> capture(cudaStream_t stream, const std::function<void()>& body) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t recorded = nullptr;
  try {
    body();
  } catch (...) {
    // The capture has to end before the stream can be used again; `body` says what failed.
    static_cast<void>(cudaStreamEndCapture(stream, &recorded));
    if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
    static_cast<void>(cudaGetLastError());
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &recorded));
  const Owner<cudaGraph_t> graph(recorded);
  cudaGraphExec_t made = nullptr;
  check_cuda(cudaGraphInstantiate(&made, graph.get(), 0));
  Owner<cudaGraphExec_t> executable(made);
  check_cuda(cudaGraphUpload(made, stream));
  check_cuda(cudaStreamSynchronize(stream));
  return executable;
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace leanattn::tools
