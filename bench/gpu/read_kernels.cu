// See read_kernels.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "handles.h"
#include "read_kernels.h"

namespace leanattn::bench {
namespace {

constexpr int kInFlight = 8;       // loads of a thread, or copies of a block
constexpr int kThreads = 512;      // of a block that loads
constexpr int kBulkThreads = 256;  // of a block that copies in bulk
constexpr int kBulkBytes = 8192;   // of a copy
constexpr int kBulkSharedBytes = kInFlight * kBulkBytes;

__device__ void take(uint4& sum, const uint4& value) {
  sum.x ^= value.x;
  sum.y ^= value.y;
  sum.z ^= value.z;
  sum.w ^= value.w;
}

// Keeps every load alive: the compiler cannot know that this does not happen.
__device__ void keep(const uint4& sum, uint4* sink) {
  if (sum.x == 0x9e3779b9u && sum.y == 0x7f4a7c15u && sum.z == 0xbf58476du &&
      sum.w == 0x1ce4e5b9u) {
    *sink = sum;
  }
}

// `count` pieces of 16 bytes.
__global__ void __launch_bounds__(kThreads)
    plain_kernel(const uint4* __restrict__ data, std::int64_t count, uint4* sink) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint4 sum{};
  for (; i + (kInFlight - 1) * stride < count; i += kInFlight * stride) {
    uint4 values[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) values[u] = __ldg(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) take(sum, values[u]);
  }
#pragma unroll
  for (int u = 0; u < kInFlight - 1; ++u) {
    if (i + u * stride < count) take(sum, __ldg(data + i + u * stride));
  }
  keep(sum, sink);
}

__device__ uint4 load_once(const uint4* address) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(address));
  return value;
}

__global__ void __launch_bounds__(kThreads)
    pipelined_kernel(const uint4* __restrict__ data, std::int64_t count, uint4* sink) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  uint4 sum{};
  uint4 ring[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    ring[u] = i + u * stride < count ? load_once(data + i + u * stride) : uint4{};
  }
  // Pieces i, …, i + 7·stride are in the ring; each is taken as the one that is eight
  // strides on is asked for.
  for (; i + kInFlight * stride < count; i += kInFlight * stride) {
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      take(sum, ring[u]);
      const std::int64_t next = i + (kInFlight + u) * stride;
      ring[u] = next < count ? load_once(data + next) : uint4{};
    }
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) take(sum, ring[u]);
  keep(sum, sink);
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void copy_in_bulk(std::uint32_t to, const std::byte* from, std::uint32_t bytes,
                             std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ void wait_for(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
#endif

// Block b copies the chunks b, b + gridDim, … to shared memory; chunk k of the block goes
// to stage k mod 8.
__global__ void __launch_bounds__(kBulkThreads)
    bulk_kernel(const std::byte* __restrict__ data, std::int64_t bytes, uint4* sink) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::byte stages[];
  __shared__ __align__(8) std::uint64_t barriers[kInFlight];
  const std::int64_t chunks = (bytes + kBulkBytes - 1) / kBulkBytes;
  const std::int64_t mine = blockIdx.x < chunks ? (chunks - 1 - blockIdx.x) / gridDim.x + 1 : 0;
  const auto size_of_chunk = [&](std::int64_t k) {
    const std::int64_t begin = (blockIdx.x + k * gridDim.x) * kBulkBytes;
    return static_cast<std::uint32_t>(bytes - begin < kBulkBytes ? bytes - begin : kBulkBytes);
  };
  const auto issue = [&](std::int64_t k) {
    const int stage = static_cast<int>(k % kInFlight);
    copy_in_bulk(shared_address(stages + stage * kBulkBytes),
                 data + (blockIdx.x + k * gridDim.x) * kBulkBytes, size_of_chunk(k),
                 shared_address(barriers + stage));
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kInFlight; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers + stage))
                   : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    for (std::int64_t k = 0; k < kInFlight && k < mine; ++k) issue(k);
  }
  __syncthreads();
  uint4 sum{};
  for (std::int64_t k = 0; k < mine; ++k) {
    const int stage = static_cast<int>(k % kInFlight);
    wait_for(shared_address(barriers + stage), static_cast<std::uint32_t>(k / kInFlight) & 1u);
    const uint4* piece = reinterpret_cast<const uint4*>(stages + stage * kBulkBytes);
    const std::uint32_t pieces = size_of_chunk(k) / 16;
    for (std::uint32_t i = threadIdx.x; i < pieces; i += kBulkThreads) take(sum, piece[i]);
    __syncthreads();  // the stage has been read
    if (threadIdx.x == 0 && k + kInFlight < mine) issue(k + kInFlight);
  }
  keep(sum, sink);
#endif
}

__device__ std::uint64_t mix(std::uint64_t x) {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Rounds toward 0, so that nothing becomes 1.
template <bool kBFloat>
__device__ std::uint32_t value_of(std::uint32_t bits) {
  const float value = static_cast<float>(static_cast<std::int16_t>(bits)) * 0x1p-15f;
  if constexpr (kBFloat) return __bfloat16_as_ushort(__float2bfloat16_rz(value));
  return __half_as_ushort(__float2half_rz(value));
}

template <bool kBFloat>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(uint4* data, std::int64_t count, std::uint64_t seed) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    std::uint32_t words[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint64_t bits = mix(seed + 2 * static_cast<std::uint64_t>(i) + half);
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        const auto pair = static_cast<std::uint32_t>(bits >> (32 * word));
        words[2 * half + word] = value_of<kBFloat>(pair & 0xffffu) | value_of<kBFloat>(pair >> 16)
                                                                         << 16;
      }
    }
    data[i] = {words[0], words[1], words[2], words[3]};
  }
}

unsigned num_sms() {
  static const int count = device_attribute(cudaDevAttrMultiProcessorCount);
  return static_cast<unsigned>(count);
}

}  // namespace

std::string_view name_of(ReadWay way) {
  switch (way) {
    case ReadWay::kPlain: return "plain";
    case ReadWay::kPipelined: return "pipelined";
    case ReadWay::kBulk: return "bulk";
  }
  return "?";
}

bool prepare(ReadWay way) {
  if (way != ReadWay::kBulk) return true;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, bulk_kernel));
  if (attributes.ptxVersion < 90) return false;  // compiled without its body
  check_cuda(cudaFuncSetAttribute(bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  kBulkSharedBytes));
  return true;
}

void read(ReadWay way, const void* data, std::int64_t bytes, void* sink, cudaStream_t stream) {
  require(bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0,
          "the bytes to read and their address must be multiples of 16");
  auto* const to = static_cast<uint4*>(sink);
  const auto* const pieces = static_cast<const uint4*>(data);
  switch (way) {
    case ReadWay::kPlain:
      plain_kernel<<<4 * num_sms(), kThreads, 0, stream>>>(pieces, bytes / 16, to);
      break;
    case ReadWay::kPipelined:
      pipelined_kernel<<<2 * num_sms(), kThreads, 0, stream>>>(pieces, bytes / 16, to);
      break;
    case ReadWay::kBulk:
      bulk_kernel<<<num_sms(), kBulkThreads, kBulkSharedBytes, stream>>>(
          static_cast<const std::byte*>(data), bytes, to);
      break;
  }
  check_cuda(cudaGetLastError());
}

void fill(void* data, ElementType type, std::int64_t bytes, std::uint64_t seed,
          cudaStream_t stream) {
  require(type == ElementType::kBFloat16 || type == ElementType::kFloat16,
          "the type to fill with must be bf16 or f16");
  require(bytes % 16 == 0, "the bytes to fill must be a multiple of 16");
  auto* const to = static_cast<uint4*>(data);
  if (type == ElementType::kBFloat16) {
    fill_kernel<true><<<4 * num_sms(), kThreads, 0, stream>>>(to, bytes / 16, seed);
  } else {
    fill_kernel<false><<<4 * num_sms(), kThreads, 0, stream>>>(to, bytes / 16, seed);
  }
  check_cuda(cudaGetLastError());
}

}  // namespace leanattn::bench
