// See plain_attention.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "handles.h"
#include "leanattn/visibility.h"
#include "plain_attention.h"

namespace leanattn::bench {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float to_float(__half value) { return __half2float(value); }

template <class Element>
struct Rows {  // of keys or of values; strides in elements
  const Element* data;
  std::int64_t outer, token, head;  // outer: of a sequence, or of a page
};

template <class Element>
struct Call {
  const Element* q;           // [batch, q_len, q_heads, dim]
  std::int64_t q_strides[3];  // of its first three dimensions, elements
  Rows<Element> k, v;
  const std::int32_t* lengths;     // [batch]
  const std::int32_t* page_table;  // [batch, …] or null
  std::int64_t table_stride;       // elements
  std::int64_t page_size;
  std::int64_t group_size;  // query heads of a KV head
  Window window;
  double scale;
  float* out;  // [batch, q_len, q_heads, dim], contiguous
};

template <class Element, int kPerLane>
struct alignas(sizeof(Element) * kPerLane) Piece {  // what a lane holds of a row
  Element elements[kPerLane];
};

template <class Element>
__device__ const Element* row_of(const Call<Element>& call, const Rows<Element>& rows,
                                 std::int64_t sequence, std::int64_t token, std::int64_t kv_head) {
  std::int64_t outer = sequence;
  if (call.page_table != nullptr) {
    outer = call.page_table[sequence * call.table_stride + token / call.page_size];
    token %= call.page_size;
  }
  return rows.data + outer * rows.outer + token * rows.token + kv_head * rows.head;
}

template <class Element, int kPerLane>
__device__ Piece<Element, kPerLane> piece_of(const Element* row, int lane) {
  return reinterpret_cast<const Piece<Element, kPerLane>*>(row)[lane];
}

__device__ double sum_over_lanes(double value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kAllLanes, value, step);
  return value;
}

// Block (head, query, sequence). Warp w takes the visible keys w, w + 16, …
template <class Element, int kPerLane>
__global__ void __launch_bounds__(kThreads) attention_kernel(const Call<Element> call) {
  constexpr int kDim = 32 * kPerLane;
  __shared__ double warp_max[kWarps];
  __shared__ double warp_sum[kWarps];
  __shared__ double warp_out[kWarps][kDim];
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const std::int64_t head = blockIdx.x;
  const std::int64_t query = blockIdx.y;
  const std::int64_t sequence = blockIdx.z;
  const std::int64_t kv_head = head / call.group_size;
  const std::int64_t num_keys = call.lengths[sequence];
  const std::int64_t position = num_keys - gridDim.y + query;
  const Range keys = visible_keys(call.window, position, position, num_keys);

  double q[kPerLane];
  {
    const Element* row = call.q + sequence * call.q_strides[0] + query * call.q_strides[1] +
                         head * call.q_strides[2];
    const auto piece = piece_of<Element, kPerLane>(row, lane);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) q[i] = to_float(piece.elements[i]) * call.scale;
  }
  const auto score = [&](std::int64_t token) {
    const auto piece =
        piece_of<Element, kPerLane>(row_of(call, call.k, sequence, token, kv_head), lane);
    double sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += q[i] * to_float(piece.elements[i]);
    return sum_over_lanes(sum);
  };

  double max = -INFINITY;
#pragma unroll 4
  for (std::int64_t t = keys.begin + warp; t < keys.end; t += kWarps) max = fmax(max, score(t));
  if (lane == 0) warp_max[warp] = max;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) max = fmax(max, warp_max[w]);

  double sum = 0;
  double out[kPerLane] = {};
#pragma unroll 4
  for (std::int64_t t = keys.begin + warp; t < keys.end; t += kWarps) {
    const double weight = exp(score(t) - max);
    const auto piece =
        piece_of<Element, kPerLane>(row_of(call, call.v, sequence, t, kv_head), lane);
    sum += weight;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) out[i] += weight * to_float(piece.elements[i]);
  }
  if (lane == 0) warp_sum[warp] = sum;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) warp_out[warp][lane * kPerLane + i] = out[i];
  __syncthreads();
  for (int dim = threadIdx.x; dim < kDim; dim += kThreads) {
    double total = 0;
    double value = 0;
    for (int w = 0; w < kWarps; ++w) {
      total += warp_sum[w];
      value += warp_out[w][dim];
    }
    const std::int64_t row =
        (sequence * gridDim.y + query) * static_cast<std::int64_t>(gridDim.x) + head;
    call.out[row * kDim + dim] = static_cast<float>(keys.empty() ? 0.0 : value / total);
  }
}

template <class Element>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const Element* out, const float* wanted, std::int64_t count, double* sums) {
  double error = 0;
  double norm = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    const double difference = static_cast<double>(to_float(out[i])) - wanted[i];
    error += difference * difference;
    norm += static_cast<double>(wanted[i]) * wanted[i];
  }
  error = sum_over_lanes(error);
  norm = sum_over_lanes(norm);
  if (threadIdx.x % 32 == 0) {
    atomicAdd(sums, error);
    atomicAdd(sums + 1, norm);
  }
}

template <class Element>
Rows<Element> rows_of(const TensorView<4>& view) {
  return {static_cast<const Element*>(view.data), view.strides[0], view.strides[1],
          view.strides[2]};
}

template <class Element>
void launch(const Arguments& arguments, const ScoreRules& rules, float* out, cudaStream_t stream) {
  const TensorView<4>& q = arguments.q;
  const KvView& kv = arguments.kv;
  const bool paged = kv.layout == KvLayout::kPagedDense;
  const Call<Element> call{static_cast<const Element*>(q.data),
                           {q.strides[0], q.strides[1], q.strides[2]},
                           rows_of<Element>(kv.k),
                           rows_of<Element>(kv.v),
                           static_cast<const std::int32_t*>(arguments.lengths.data),
                           paged ? static_cast<const std::int32_t*>(kv.page_table.data) : nullptr,
                           kv.page_table.row_stride,
                           kv.page_size(),
                           q.shape[2] / kv.k.shape[2],
                           rules.window,
                           rules.scale ? static_cast<double>(*rules.scale)
                                       : 1.0 / std::sqrt(static_cast<double>(q.shape[3])),
                           out};
  const dim3 grid(static_cast<unsigned>(q.shape[2]), static_cast<unsigned>(q.shape[1]),
                  static_cast<unsigned>(q.shape[0]));
  switch (q.shape[3]) {
    case 64: attention_kernel<Element, 2><<<grid, kThreads, 0, stream>>>(call); break;
    case 128: attention_kernel<Element, 4><<<grid, kThreads, 0, stream>>>(call); break;
    case 256: attention_kernel<Element, 8><<<grid, kThreads, 0, stream>>>(call); break;
    default: require(false, "head_dim must be 64, 128 or 256");
  }
  check_cuda(cudaGetLastError());
}

}  // namespace

void plain_attention(const Arguments& arguments, const ScoreRules& rules, float* out,
                     cudaStream_t stream) {
  const TensorView<4>& q = arguments.q;
  const KvView& kv = arguments.kv;
  require(q.type == kv.k.type && q.type == kv.v.type && q.shape[3] == kv.v.shape[3],
          "q, k and v must be of one type and one head_dim");
  require(kv.layout != KvLayout::kPagedCsr && !kv.cache_rows.given(),
          "the cache must be contiguous or paged by a dense table");
  require(!arguments.q_offsets.given() && q.shape[1] <= 65535 && q.shape[0] <= 65535,
          "queries must be uniform, and at most 65535 of a sequence");
  if (q.type == ElementType::kBFloat16) {
    launch<__nv_bfloat16>(arguments, rules, out, stream);
  } else {
    require(q.type == ElementType::kFloat16, "q must be bf16 or f16");
    launch<__half>(arguments, rules, out, stream);
  }
}

void add_squares(const void* out, ElementType type, const float* wanted, std::int64_t count,
                 double* sums, cudaStream_t stream) {
  constexpr unsigned kBlocks = 264;
  if (type == ElementType::kBFloat16) {
    squares_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const __nv_bfloat16*>(out), wanted,
                                                     count, sums);
  } else {
    require(type == ElementType::kFloat16, "out must be bf16 or f16");
    squares_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<const __half*>(out), wanted, count,
                                                     sums);
  }
  check_cuda(cudaGetLastError());
}

}  // namespace leanattn::bench
