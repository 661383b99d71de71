// Offsets past 2^31 elements and 2^32 bytes, in each dimension of a cache. Queries are 0,
// so only values count, and only those that are read are written.
#include <cmath>

#include "device_call.h"
#include "leanattn/half.h"

namespace leanattn::testing {
namespace {

constexpr std::int64_t kDim = 128;
constexpr std::int64_t kElements = (std::int64_t{1} << 31) + (std::int64_t{1} << 20);

// One buffer that is keys and values at once: 4.3 GB, of which a test writes what it reads.
class LargeCaches : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (!device_has(kElements * 2)) GTEST_SKIP() << "the device has less than 5 GB to spare";
    cache_ = DeviceArray(kElements * 2);
    check_cuda(cudaMemset(cache_.data(), 0xff, cache_.size()));  // NaN
  }

  // Sets `count` elements from `first` to 1.
  void write_ones(std::int64_t first, std::int64_t count) const {
    std::vector<std::uint16_t> ones(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      store_float(ones.data(), ElementType::kBFloat16, i, 1.0f);
    }
    check_cuda(cudaMemcpy(cache_.data() + first * 2, ones.data(), ones.size() * 2,
                          cudaMemcpyHostToDevice));
    check_cuda(cudaDeviceSynchronize());
  }

  [[nodiscard]] TensorView<4> view(const std::array<std::int64_t, 4>& shape,
                                   const std::array<std::int64_t, 4>& strides) const {
    auto made = device_view<4, const void*>(cache_.data(), shape);
    made.strides = strides;
    return made;
  }

  // Every plan gives 1 in every element, and `lse`.
  static void expect_ones(KvView kv, const std::vector<std::int32_t>& lengths, double lse,
                          const ScoreRules& rules = {}) {
    const std::int64_t heads = kv.k.shape[2];
    kv.v = kv.k;
    CallShape shape;
    shape.num_q_heads = shape.num_kv_heads = heads;
    shape.capacity = 1;
    const DeviceCall small(shape, lengths);  // for all but the cache
    const CudaStream stream;
    small.q().fill(0, stream.get());
    Arguments call = small.arguments();
    call.kv = kv;
    for (const PlanOptions& options : cuda_plans()) {
      if (options.batch_invariant) continue;  // a partial for each LeanTile of the capacity
      const Plan made = plan(problem_of(call, rules), options);
      const Workspace workspace(made, stream);
      small.poison(stream);
      run(made, call, workspace.bytes(), stream.view());
      const auto out = small.out().content<std::uint16_t>(stream.get());
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(load_float(out.data(), ElementType::kBFloat16, static_cast<std::int64_t>(i)), 1)
            << "element " << i << ", " << explain(made);
      }
      for (const float value : small.lse().content<float>(stream.get())) {
        ASSERT_NEAR(value, lse, 1e-5) << explain(made);
      }
    }
  }

  DeviceArray cache_;
};

TEST_F(LargeCaches, ThePageBehind) {
  constexpr std::int64_t kPageSize = 16;
  constexpr std::int64_t kPageElements = kPageSize * kDim;
  constexpr std::int64_t kPages = kElements / kPageElements;
  write_ones((kPages - 1) * kPageElements, kPageElements);
  const DeviceArray table(std::vector<std::int32_t>{static_cast<std::int32_t>(kPages - 1)});
  KvView kv;
  kv.layout = KvLayout::kPagedDense;
  kv.k = view({kPages, kPageSize, 1, kDim}, {kPageElements, kDim, kDim, 1});
  kv.page_table = on_device(index_table(reinterpret_cast<const std::int32_t*>(table.data()), 1, 1));
  expect_ones(kv, {kPageSize}, std::log(static_cast<double>(kPageSize)));
}

TEST_F(LargeCaches, TheRowBehind) {
  constexpr std::int64_t kStride = std::int64_t{1} << 30;
  const DeviceArray rows(std::vector<std::int32_t>{2, 1});
  for (const std::int64_t row : {1, 2}) write_ones(row * kStride, 3 * kDim);
  KvView kv;
  kv.k = view({3, 8, 1, kDim}, {kStride, kDim, kDim, 1});
  kv.cache_rows = on_device(indices(reinterpret_cast<const std::int32_t*>(rows.data()), 2));
  expect_ones(kv, {3, 3}, std::log(3.0));
}

TEST_F(LargeCaches, TheHeadBehind) {
  constexpr std::int64_t kStride = std::int64_t{1} << 31;
  write_ones(0, 5 * kDim);
  write_ones(kStride, 5 * kDim);
  KvView kv;
  kv.k = view({1, 8, 2, kDim}, {0, kDim, kStride, 1});
  expect_ones(kv, {5}, std::log(5.0));
}

// Key 2^24 of one sequence: only the newest keys are in the window.
TEST_F(LargeCaches, TheKeysBehind) {
  constexpr std::int64_t kKeys = kElements / kDim;
  constexpr std::int64_t kSeen = 1000;
  write_ones((kKeys - kSeen) * kDim, kSeen * kDim);
  KvView kv;
  kv.k = view({1, kKeys, 1, kDim}, {kKeys * kDim, kDim, kDim, 1});
  ScoreRules rules;
  rules.window = {true, kSeen - 1, -1};
  expect_ones(kv, {static_cast<std::int32_t>(kKeys)}, std::log(static_cast<double>(kSeen)), rules);
}

// As a token's stride grows, so does its offset: a key every 2^27 elements.
TEST_F(LargeCaches, TheTokenBehind) {
  constexpr std::int64_t kStride = std::int64_t{1} << 27;
  for (std::int64_t j = 0; j < 17; ++j) write_ones(j * kStride, kDim);
  KvView kv;
  kv.k = view({1, 17, 1, kDim}, {0, kStride, kDim, 1});
  expect_ones(kv, {17}, std::log(17.0));
}

}  // namespace
}  // namespace leanattn::testing
