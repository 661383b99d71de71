// As many sequences in one call as a server may have, most of them without keys. All share
// the pages of a small cache whose values are 1, so that the answer is known.
#include <cmath>
#include <limits>

#include "device_call.h"
#include "leanattn/half.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

class ManySequences : public CudaTest {};

constexpr std::int64_t kBatch = 16'384;
constexpr std::int64_t kWidth = 8;  // pages of a sequence
constexpr std::int64_t kPageSize = 16;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::vector<std::int32_t> draw_lengths() {
  RandomBits bits(1);
  std::vector<std::int32_t> lengths(kBatch);
  for (auto& n : lengths) {
    n = bits.chance(0.7) ? 0 : static_cast<std::int32_t>(bits.log_between(1, kWidth * kPageSize));
  }
  return lengths;
}

TEST_F(ManySequences, InOneCallWithManyZeroLengths) {
  constexpr std::int64_t kKvHeads = 2;
  constexpr std::int64_t kDim = 128;
  const std::vector<std::int32_t> lengths = draw_lengths();
  CallShape shape;
  shape.num_q_heads = 4;
  shape.num_kv_heads = kKvHeads;
  shape.capacity = 1;
  const DeviceCall small(shape, lengths);  // for all but the cache
  const CudaStream stream;
  small.q().fill(0, stream.get());
  std::vector<std::uint16_t> ones(kWidth * kPageSize * kKvHeads * kDim);
  for (std::size_t i = 0; i < ones.size(); ++i) {
    store_float(ones.data(), ElementType::kBFloat16, static_cast<std::int64_t>(i), 1.0f);
  }
  const DeviceArray cache(ones);
  std::vector<std::int32_t> pages(kBatch * kWidth);
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::int32_t>(i % kWidth);
  const DeviceArray table(pages);
  Arguments call = small.arguments();
  call.kv.layout = KvLayout::kPagedDense;
  call.kv.k = device_view<4, const void*>(cache.data(), {kWidth, kPageSize, kKvHeads, kDim});
  call.kv.v = call.kv.k;
  call.kv.page_table =
      on_device(index_table(reinterpret_cast<const std::int32_t*>(table.data()), kBatch, kWidth));
  for (const PlanOptions& options : cuda_plans()) {
    const Plan made = plan(problem_of(call), options);
    const Workspace workspace(made, stream);
    small.poison(stream);
    run(made, call, workspace.bytes(), stream.view());
    const auto out = small.out().content<std::uint16_t>(stream.get());
    const auto lse = small.lse().content<float>(stream.get());
    const std::size_t row = out.size() / kBatch;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float value =
          load_float(out.data(), ElementType::kBFloat16, static_cast<std::int64_t>(i));
      ASSERT_EQ(value, lengths[i / row] > 0 ? 1 : 0) << "sequence " << i / row << explain(made);
    }
    for (std::size_t i = 0; i < lse.size(); ++i) {
      const auto n = static_cast<float>(lengths[i / 4]);
      const float right = n > 0 ? std::log(n) : kMinusInfinity;
      if (n > 0) {
        ASSERT_NEAR(lse[i], right, 1e-5) << "sequence " << i / 4 << explain(made);
      } else {
        ASSERT_EQ(lse[i], right) << "sequence " << i / 4 << explain(made);
      }
    }
  }
}

}  // namespace
}  // namespace leanattn::testing
