// Errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include "leanattn/error.h"

namespace leanattn::cuda {

/// The CUDA runtime refused or failed: the message names the step and what it said.
class CudaError : public Error {
 public:
  using Error::Error;
};

inline void check_cuda(cudaError_t status, const char* step,
                       SourceLocation where = SourceLocation::current()) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not see this one's
  throw CudaError(concat(step, " failed: ", cudaGetErrorString(status)), where);
}

/// Makes a device current, and the one before it when done.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    if (device == before_) return;
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
    changed_ = true;
  }
  ~CurrentDevice() {
    if (changed_) static_cast<void>(cudaSetDevice(before_));
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace leanattn::cuda
