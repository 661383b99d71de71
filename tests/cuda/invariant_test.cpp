// batch_invariant: a row's bits are its own. Sequences of one pool of pages, alone and in
// batches, in pages elsewhere, in wider tables, with any number of workers. Contexts are
// long enough that many workers share a sequence.
#include <numeric>

#include "device_call.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

constexpr std::int64_t kMembers = 8;
constexpr std::int64_t kPageSize = 16;
constexpr std::int64_t kDim = 128;
constexpr std::int64_t kKvHeads = 2;
constexpr std::int32_t kLengths[kMembers] = {20'000, 3, 4097, 130, 1024, 0, 9999, 1};
constexpr std::int64_t kPagesEach = 1250;  // of the longest

// Pages of all members, placed by a permutation.
class Pool {
 public:
  explicit Pool(std::uint64_t placement) : place_(kMembers * kPagesEach) {
    std::iota(place_.begin(), place_.end(), 0);
    if (placement > 0) RandomBits(placement).shuffle(place_);
    k_ = placed(random_bf16(kElements, 1));
    v_ = placed(random_bf16(kElements, 2));
  }

  [[nodiscard]] std::int32_t page(std::int64_t member, std::int64_t index) const {
    return place_[static_cast<std::size_t>(member * kPagesEach + index)];
  }
  void set(KvView& kv) const {
    const std::array<std::int64_t, 4> shape{kMembers * kPagesEach, kPageSize, kKvHeads, kDim};
    kv.layout = KvLayout::kPagedDense;
    kv.k = device_view<4, const void*>(k_.data(), shape);
    kv.v = device_view<4, const void*>(v_.data(), shape);
  }

 private:
  static constexpr std::int64_t kPageElements = kPageSize * kKvHeads * kDim;
  static constexpr std::int64_t kElements = kMembers * kPagesEach * kPageElements;

  // `pages` with page i moved to where it is placed.
  [[nodiscard]] DeviceArray placed(const DeviceArray& pages) const {
    constexpr std::size_t kBytes = kPageElements * 2;
    DeviceArray moved(pages.size());
    for (std::size_t i = 0; i < place_.size(); ++i) {
      check_cuda(cudaMemcpyAsync(moved.data() + static_cast<std::size_t>(place_[i]) * kBytes,
                                 pages.data() + i * kBytes, kBytes, cudaMemcpyDeviceToDevice,
                                 nullptr));
    }
    check_cuda(cudaStreamSynchronize(nullptr));
    return moved;
  }

  std::vector<std::int32_t> place_;
  DeviceArray k_, v_;
};

// A batch of members of a pool.
struct BatchOf {
  std::vector<std::int64_t> members;
  std::int64_t group = 1;          // query heads per KV head
  std::int64_t spare_columns = 0;  // of the page table: room for more keys
};

// The bytes of out and lse, one string of them for each sequence.
std::vector<std::vector<std::byte>> rows_of(const BatchOf& batch, const Pool& pool,
                                            PlanOptions options) {
  const auto size = static_cast<std::int64_t>(batch.members.size());
  const std::int64_t heads = batch.group * kKvHeads;
  const std::int64_t width = kPagesEach + batch.spare_columns;
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> table;
  DeviceArray q(static_cast<std::size_t>(size * heads * kDim) * 2);
  for (std::size_t b = 0; b < batch.members.size(); ++b) {
    const std::int64_t member = batch.members[b];
    lengths.push_back(kLengths[member]);
    for (std::int64_t i = 0; i < width; ++i) {
      table.push_back(i < kPagesEach ? pool.page(member, i) : -1);
    }
    const DeviceArray row = random_bf16(heads * kDim, 100 + static_cast<std::uint64_t>(member));
    check_cuda(
        cudaMemcpy(q.data() + b * row.size(), row.data(), row.size(), cudaMemcpyDeviceToDevice));
  }
  check_cuda(cudaDeviceSynchronize());
  const DeviceArray device_lengths(lengths);
  const DeviceArray device_table(table);
  const DeviceArray out(q.size());
  const DeviceArray lse(static_cast<std::size_t>(size * heads) * 4);

  Arguments call;
  pool.set(call.kv);
  call.q = device_view<4, const void*>(q.data(), {size, 1, heads, kDim});
  call.out = device_view<4, void*>(out.data(), {size, 1, heads, kDim});
  call.lse = device_view<3, void*>(lse.data(), {size, 1, heads}, ElementType::kFloat32);
  call.lengths =
      on_device(indices(reinterpret_cast<const std::int32_t*>(device_lengths.data()), size));
  call.kv.page_table = on_device(
      index_table(reinterpret_cast<const std::int32_t*>(device_table.data()), size, width));
  const CudaStream stream;
  out.fill(0xff, stream.get());
  options.backend = "cuda";
  options.batch_invariant = true;
  decode(call, {}, options, stream.view());

  const std::vector<std::byte> out_bytes = out.content(stream.get());
  const std::vector<std::byte> lse_bytes = lse.content(stream.get());
  std::vector<std::vector<std::byte>> rows(batch.members.size());
  for (std::size_t b = 0; b < rows.size(); ++b) {
    for (const auto* bytes : {&out_bytes, &lse_bytes}) {
      const auto each = static_cast<std::ptrdiff_t>(bytes->size() / rows.size());
      const auto begin = bytes->begin() + static_cast<std::ptrdiff_t>(b) * each;
      rows[b].insert(rows[b].end(), begin, begin + each);
    }
  }
  return rows;
}

std::vector<PlanOptions> partitions() {
  std::vector<PlanOptions> all(1);
  for (const std::int64_t workers : {0, 1, 2, 7, 76, 132}) {
    PlanOptions& options = all.emplace_back();
    options.partition = PartitionChoice::kStreamK;
    options.num_workers = workers;
  }
  all.emplace_back().partition = PartitionChoice::kOneTile;
  PlanOptions& split = all.emplace_back();
  split.partition = PartitionChoice::kFixedSplit;
  split.num_splits = 5;
  return all;
}

class Invariant : public CudaTest, public ::testing::WithParamInterface<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(GroupSizes, Invariant, ::testing::Values(1, 8));

TEST_P(Invariant, ARowDoesNotDependOnBatchMatesPagesCapacityOrWorkers) {
  const Pool pool(0);
  const Pool elsewhere(42);
  std::vector<std::vector<std::byte>> alone;
  for (std::int64_t member = 0; member < kMembers; ++member) {
    alone.push_back(rows_of({{member}, GetParam()}, pool, {}).front());
  }
  const std::vector<PlanOptions> all = partitions();
  std::size_t variant = 0;
  for (const std::size_t size : {1, 2, 3, 8, 32, 33, 64}) {
    std::vector<std::int64_t> members(size);
    for (std::size_t b = 0; b < size; ++b) {
      members[b] = static_cast<std::int64_t>((b * 5 + size) % kMembers);
    }
    for (const PlanOptions& options : all) {
      ++variant;
      const BatchOf batch{members, GetParam(), variant % 3 == 0 ? 700 : 0};
      const auto rows = rows_of(batch, variant % 2 == 0 ? pool : elsewhere, options);
      for (std::size_t b = 0; b < size; ++b) {
        ASSERT_EQ(rows[b], alone[static_cast<std::size_t>(members[b])])
            << "sequence " << b << " of " << size << ", " << name_of(options.partition) << ' '
            << options.num_workers;
      }
    }
  }
}

}  // namespace
}  // namespace leanattn::testing
