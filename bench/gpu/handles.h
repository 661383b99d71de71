// CUDA's handles and checks, as this folder calls them.
#pragma once

#include "cuda_handles.h"

namespace leanattn::bench {

using tools::capture;
using tools::check_cuda;
using tools::CudaError;
using tools::device_attribute;
using tools::DeviceBuffer;
using tools::make_event;
using tools::make_stream;
using tools::Owner;
using tools::require;

}  // namespace leanattn::bench
