#include "cuda/bulk_copies.h"

#include <algorithm>

#include "cuda/cuda_error.h"

namespace leanattn::cuda {
namespace {

constexpr std::int64_t kLeastRows = 16;  // of a copy: what a warp takes at a time

/// Elements of a panel, as TileMemory has them.
std::int64_t panel(std::int64_t dim) { return dim % 64 == 0 ? 64 : dim % 32 == 0 ? 32 : 16; }

bool suits(const TensorView<4>& cache) {
  constexpr std::int64_t kMostStride = std::int64_t{1} << 39;  // elements of 2 bytes
  constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;
  const std::int64_t dim = cache.shape[3];
  if (reinterpret_cast<std::uintptr_t>(cache.data) % 16 != 0 || dim % 16 != 0) return false;
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = cache.strides[i];
    if (cache.shape[i] < 1 || cache.shape[i] >= kMostExtent) return false;
    if (cache.shape[i] > 1 && (stride % 8 != 0 || stride <= 0 || stride >= kMostStride)) {
      return false;
    }
  }
  return true;
}

using Encode = decltype(&cuTensorMapEncodeTiled);

/// The driver's function, asked for at run time: the library links no driver.
Encode encode_function() {
  static const Encode function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult status{};
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                cudaEnableDefault, &status),
               "cudaGetDriverEntryPointByVersion");
    if (status != cudaDriverEntryPointSuccess) {
      throw CudaError("the driver has no cuTensorMapEncodeTiled; a newer one is needed");
    }
    return reinterpret_cast<Encode>(found);
  }();
  return function;
}

CUtensorMap make_map(const TensorView<4>& cache, std::int64_t rows) {
  const std::int64_t dim = cache.shape[3];
  const std::int64_t width = panel(dim);
  const auto extent = [](std::int64_t n) { return static_cast<cuuint64_t>(n); };
  // The stride of an extent of 1 is never used, but must be a valid one.
  const auto bytes = [&](int i) {
    return static_cast<cuuint64_t>(cache.shape[i] > 1 ? cache.strides[i] * 2 : 16);
  };
  const cuuint64_t extents[5] = {extent(width), extent(cache.shape[1]), extent(dim / width),
                                 extent(cache.shape[2]), extent(cache.shape[0])};
  const cuuint64_t strides[4] = {bytes(1), extent(width * 2), bytes(2), bytes(0)};
  const auto box_extent = [](std::int64_t n) { return static_cast<cuuint32_t>(n); };
  const cuuint32_t box[5] = {box_extent(width), box_extent(rows), box_extent(dim / width), 1, 1};
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  const CUtensorMapSwizzle swizzle = width == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : width == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                   : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMap map{};
  const CUresult result = encode_function()(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, const_cast<void*>(cache.data), extents, strides,
      box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  check<CudaError>(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled failed with ",
                   static_cast<int>(result));
  return map;
}

}  // namespace

bool bulk_copies_suit(const KvView& kv) {
  if (kv.layout != KvLayout::kContiguous && kv.page_size() % kLeastRows != 0) return false;
  return suits(kv.k) && suits(kv.v);
}

int rows_together(const KvView& kv, int most) {
  if (kv.layout == KvLayout::kContiguous) return most;
  int rows = most;
  while (kv.page_size() % rows != 0) rows /= 2;
  return rows;
}

KvMaps make_kv_maps(const KvView& kv, int rows) {
  return {make_map(kv.k, rows), make_map(kv.v, rows)};
}

}  // namespace leanattn::cuda
