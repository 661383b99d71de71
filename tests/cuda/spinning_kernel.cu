#include <stdexcept>

#include "spinning_kernel.h"

namespace leanattn::testing {
namespace {

constexpr long long kNanosecondsPerMinute = 60'000'000'000;

void check_cuda_call(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

__device__ long long nanoseconds() {
  long long time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void spin_until(const volatile int* stop, float* result) {
  __shared__ bool stopped;
  const long long begin = nanoseconds();
  float value = static_cast<float>(threadIdx.x);
  do {
    for (int i = 0; i < 100'000; ++i) value = value * 0.999f + 1.0f;
    // One thread looks: host memory is far, and others read it, too.
    if (threadIdx.x == 0) {
      stopped = *stop != 0 || nanoseconds() - begin >= kNanosecondsPerMinute;
    }
    __syncthreads();
  } while (!stopped);
  result[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

}  // namespace

SpinningKernel::SpinningKernel() {
  constexpr int kThreads = 128;
  constexpr int kSharedBytes = 120 * 1024;  // of an SM: no room for another block beside it
  int device = 0;
  int num_sms = 0;
  check_cuda_call(cudaGetDevice(&device));
  check_cuda_call(cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device));
  check_cuda_call(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  check_cuda_call(
      cudaHostAlloc(reinterpret_cast<void**>(&stop_), sizeof(int), cudaHostAllocMapped));
  check_cuda_call(cudaMalloc(reinterpret_cast<void**>(&result_),
                             static_cast<std::size_t>(num_sms) * kThreads * sizeof(float)));
  *stop_ = 0;
  check_cuda_call(
      cudaFuncSetAttribute(spin_until, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  spin_until<<<num_sms / 2, kThreads, kSharedBytes, stream_>>>(stop_, result_);
  check_cuda_call(cudaGetLastError());
}

SpinningKernel::~SpinningKernel() {
  *static_cast<volatile int*>(stop_) = 1;
  cudaStreamSynchronize(stream_);
  cudaFree(result_);
  cudaFreeHost(stop_);
  cudaStreamDestroy(stream_);
}

bool SpinningKernel::running() const { return cudaStreamQuery(stream_) == cudaErrorNotReady; }

}  // namespace leanattn::testing
