// A decode step on a GPU as a CUDA graph. The README shows capture_step.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "leanattn/attention.h"
#include "leanattn/half.h"

/// One decode step, ready to be launched at every length: lengths and page tables are read
/// from device memory when it executes. `call` holds views of device memory.
cudaGraphExec_t capture_step(const leanattn::Arguments& call, cudaStream_t stream) {
  const leanattn::Plan plan = leanattn::plan(leanattn::problem_of(call));
  void* memory = nullptr;  // the graph's, as long as it lives
  cudaMalloc(&memory, plan.workspace_bytes);
  const std::span workspace(static_cast<std::byte*>(memory), plan.workspace_bytes);
  leanattn::initialise(plan, workspace, {stream});  // once
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t step = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  leanattn::run(plan, call, workspace, {stream});  // as often as you like
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&step, graph, 0);
  return step;
}

namespace {

template <class T>
void* on_device(const std::vector<T>& values) {
  void* memory = nullptr;
  cudaMalloc(&memory, values.size() * sizeof(T));
  cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyDefault);
  return memory;
}

/// bf16 in device memory, every element `value`.
leanattn::MutableTensorView<4> filled(const std::array<std::int64_t, 4>& shape, float value) {
  const std::vector<std::uint16_t> bits(
      static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]),
      leanattn::bfloat16_of_float(value));
  auto view =
      leanattn::contiguous<4, void*>(on_device(bits), leanattn::ElementType::kBFloat16, shape);
  view.device = {leanattn::Device::Kind::kDevice, 0};
  return view;
}

void decode_three_lengths() {
  constexpr std::int64_t kCapacity = 4096;  // keys of 8 KV heads of 128, for 32 query heads
  leanattn::Arguments call;
  call.q = leanattn::as_const(filled({1, 1, 32, 128}, 0.5f));
  call.kv.k = leanattn::as_const(filled({1, kCapacity, 8, 128}, 0.25f));
  call.kv.v = leanattn::as_const(filled({1, kCapacity, 8, 128}, 3.0f));
  call.out = filled({1, 1, 32, 128}, 0.0f);
  auto* length = static_cast<std::int32_t*>(on_device(std::vector<std::int32_t>{0}));
  call.lengths = leanattn::indices(length, 1);
  call.lengths.device = call.q.device;

  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  const cudaGraphExec_t step = capture_step(call, stream);
  for (const std::int32_t keys : {1, 100, 4096}) {
    cudaMemcpyAsync(length, &keys, sizeof(keys), cudaMemcpyDefault, stream);
    cudaGraphLaunch(step, stream);
    std::uint16_t first = 0;
    cudaMemcpyAsync(&first, call.out.data, sizeof(first), cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
    std::printf("%4d keys: %g\n", keys, leanattn::float_of_bfloat16(first));  // 3
  }
}

}  // namespace

int main() {
  try {
    decode_three_lengths();
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
