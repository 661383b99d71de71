// Bytes to specs, options and faults.
#include "fuzzed_spec.h"

#include <array>
#include <limits>

namespace leanattn::fuzz {
namespace {

ElementType make_float_type(FuzzedDataProvider& bytes) {
  return bytes.PickValueInArray(
      {ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16});
}

std::optional<ElementType> make_optional_type(FuzzedDataProvider& bytes) {
  return bytes.ConsumeIntegralInRange(0, 3) > 0 ? std::nullopt
                                                : std::optional(make_float_type(bytes));
}

void make_cache(FuzzedDataProvider& bytes, testing::CaseSpec& spec) {
  using testing::KvOrder;
  spec.layout =
      bytes.PickValueInArray({KvLayout::kContiguous, KvLayout::kPagedDense, KvLayout::kPagedCsr});
  spec.kv_order = bytes.PickValueInArray(
      {KvOrder::kNhd, KvOrder::kHnd, KvOrder::kPadded, KvOrder::kInterleaved});
  if (spec.k_type != spec.v_type && spec.kv_order == KvOrder::kInterleaved) {
    spec.kv_order = KvOrder::kNhd;
  }
  spec.page_size = bytes.ConsumeIntegralInRange<std::int64_t>(1, 40);
  spec.spare = bytes.ConsumeIntegralInRange<std::int64_t>(0, 3);
  spec.spare_columns = bytes.ConsumeIntegralInRange<std::int64_t>(0, 3);
  spec.cache_rows = bytes.ConsumeBool();
  spec.shared_prefix = bytes.ConsumeBool();
}

void make_rules(FuzzedDataProvider& bytes, testing::CaseSpec& spec) {
  ScoreRules& rules = spec.rules;
  if (bytes.ConsumeBool()) rules.softcap = bytes.PickValueInArray({0.0f, 1.0f, 30.0f});
  rules.window.causal = bytes.ConsumeBool();
  rules.window.left = bytes.ConsumeIntegralInRange<std::int64_t>(-1, 100);
  rules.window.right = bytes.ConsumeIntegralInRange<std::int64_t>(-1, 10);
  spec.sinks = make_optional_type(bytes);
  spec.alibi = make_optional_type(bytes);
  spec.bias = make_optional_type(bytes);
  if (spec.bias && bytes.ConsumeBool()) spec.bias = ElementType::kBool;
  spec.bias_per_sequence = bytes.ConsumeBool();
  spec.bias_per_head = bytes.ConsumeBool();
  if (bytes.ConsumeBool()) spec.tree = testing::TreeKind::kRandom;
}

// A number that is in range, at its border, or absurd.
std::int64_t make_number(FuzzedDataProvider& bytes, std::int64_t usual) {
  switch (bytes.ConsumeIntegralInRange(0, 5)) {
    case 0: return bytes.ConsumeIntegral<std::int64_t>();
    case 1:
      return bytes.PickValueInArray({std::int64_t{-1}, std::int64_t{0}, std::int64_t{1} << 31,
                                     std::int64_t{1} << 48, std::int64_t{1} << 60,
                                     std::numeric_limits<std::int64_t>::max(),
                                     std::numeric_limits<std::int64_t>::min()});
    default: return bytes.ConsumeIntegralInRange<std::int64_t>(0, usual);
  }
}

// Any type byte whose elements are not larger than the ones there are.
ElementType make_type_within(FuzzedDataProvider& bytes, ElementType type) {
  const auto other = static_cast<ElementType>(bytes.ConsumeIntegralInRange(0, 3));
  return size_of(other) <= size_of(type) ? other : type;
}

template <int kRank, class Pointer>
void spoil_view(FuzzedDataProvider& bytes, TensorView<kRank, Pointer>& view) {
  if (!view.given()) return;
  const int d = bytes.ConsumeIntegralInRange(0, kRank - 1);
  switch (bytes.ConsumeIntegralInRange(0, 4)) {
    case 0: view.data = nullptr; break;
    case 1: view.type = make_type_within(bytes, view.type); break;
    case 2: view.shape[d] = bytes.ConsumeIntegralInRange<std::int64_t>(-2, view.shape[d]); break;
    case 3: view.strides[d] = bytes.ConsumeIntegralInRange<std::int64_t>(0, view.strides[d]); break;
    default: view.device.kind = Device::Kind::kDevice; break;
  }
}

// Tables lie in buffers of the case, so their content may change.
void spoil_indices(FuzzedDataProvider& bytes, IndexView& view) {
  if (!view.given()) return;
  const std::int64_t size = view.rows * view.columns;
  switch (bytes.ConsumeIntegralInRange(0, 4)) {
    case 0: view.data = nullptr; break;
    case 1: view.type = IndexType::kInt32; break;
    case 2: view.columns = bytes.ConsumeIntegralInRange<std::int64_t>(-2, view.columns); break;
    case 3: view.rows = bytes.ConsumeIntegralInRange<std::int64_t>(-2, view.rows); break;
    default: {
      if (size <= 0) return;
      const auto at = bytes.ConsumeIntegralInRange<std::int64_t>(0, size - 1);
      const std::int64_t value = make_number(bytes, 200);
      auto* data = const_cast<void*>(view.data);
      if (view.type == IndexType::kInt64) {
        static_cast<std::int64_t*>(data)[at] = value;
      } else {
        static_cast<std::int32_t*>(data)[at] = static_cast<std::int32_t>(value);
      }
    }
  }
}

}  // namespace

testing::CaseSpec make_spec(FuzzedDataProvider& bytes) {
  testing::CaseSpec spec;
  spec.seed = bytes.ConsumeIntegral<std::uint16_t>();
  spec.num_kv_heads = bytes.ConsumeIntegralInRange<std::int64_t>(1, 3);
  spec.group_size = bytes.ConsumeIntegralInRange<std::int64_t>(1, 9);
  spec.head_dim = bytes.ConsumeIntegralInRange<std::int64_t>(1, 40);
  spec.v_head_dim =
      bytes.ConsumeBool() ? spec.head_dim : bytes.ConsumeIntegralInRange<std::int64_t>(1, 40);
  spec.q_type = make_float_type(bytes);
  spec.k_type = make_float_type(bytes);
  spec.v_type = make_float_type(bytes);
  spec.out_type = bytes.ConsumeBool() ? spec.q_type : ElementType::kFloat32;
  spec.index_type = bytes.PickValueInArray({IndexType::kInt32, IndexType::kInt64});
  spec.ragged_q = bytes.ConsumeBool();
  const auto batch = bytes.ConsumeIntegralInRange<std::size_t>(0, 3);
  const auto q_len = bytes.ConsumeIntegralInRange<std::int64_t>(0, 3);
  for (std::size_t b = 0; b < batch; ++b) {
    spec.lengths.push_back(bytes.ConsumeIntegralInRange<std::int64_t>(0, 150));
    spec.q_lens.push_back(spec.ragged_q ? bytes.ConsumeIntegralInRange<std::int64_t>(0, 3) : q_len);
  }
  make_cache(bytes, spec);
  make_rules(bytes, spec);
  spec.q_order = bytes.PickValueInArray(
      {testing::RowOrder::kContiguous, testing::RowOrder::kPacked, testing::RowOrder::kPadded});
  spec.out_order =
      bytes.PickValueInArray({testing::RowOrder::kContiguous, testing::RowOrder::kPadded});
  spec.with_lse = bytes.ConsumeBool();
  return spec;
}

PlanOptions make_options(FuzzedDataProvider& bytes) {
  PlanOptions options;
  options.backend = "cpu";
  options.partition = static_cast<PartitionChoice>(bytes.ConsumeIntegralInRange(0, 3));
  const auto small = [&] {
    return bytes.ConsumeIntegralInRange(0, 9) == 0
               ? bytes.ConsumeIntegral<std::int64_t>()
               : bytes.ConsumeIntegralInRange<std::int64_t>(0, 140);
  };
  if (options.partition == PartitionChoice::kFixedSplit ||
      bytes.ConsumeIntegralInRange(0, 9) == 0) {
    options.num_splits = small();
  }
  options.num_workers = small();
  options.num_threads = bytes.ConsumeIntegralInRange<std::int64_t>(1, 3);
  options.batch_invariant = bytes.ConsumeBool();
  return options;
}

Problem make_problem(FuzzedDataProvider& bytes) {
  Problem problem;
  problem.batch = make_number(bytes, 100);
  problem.max_q_len = make_number(bytes, 20);
  problem.num_queries = bytes.ConsumeBool() ? make_number(bytes, 2000) : problem.batch;
  problem.num_kv_heads = make_number(bytes, 8);
  problem.num_q_heads = bytes.ConsumeBool() ? make_number(bytes, 64) : problem.num_kv_heads;
  problem.head_dim = make_number(bytes, 256);
  problem.v_head_dim = make_number(bytes, 256);
  problem.max_kv_len = make_number(bytes, 100'000);
  problem.q_type = static_cast<ElementType>(bytes.ConsumeIntegralInRange(0, 3));
  problem.k_type = static_cast<ElementType>(bytes.ConsumeIntegralInRange(0, 3));
  problem.v_type = static_cast<ElementType>(bytes.ConsumeIntegralInRange(0, 3));
  problem.out_type = static_cast<ElementType>(bytes.ConsumeIntegralInRange(0, 3));
  problem.layout = static_cast<KvLayout>(bytes.ConsumeIntegralInRange(0, 2));
  problem.page_size = make_number(bytes, 64);
  problem.ragged_q = bytes.ConsumeBool();
  if (bytes.ConsumeBool()) problem.rules.scale = bytes.ConsumeFloatingPoint<float>();
  if (bytes.ConsumeBool()) problem.rules.softcap = bytes.ConsumeFloatingPoint<float>();
  problem.rules.window = {bytes.ConsumeBool(), make_number(bytes, 100), make_number(bytes, 100)};
  problem.has_bias = bytes.ConsumeBool();
  problem.has_tree_mask = bytes.ConsumeBool();
  return problem;
}

void spoil(FuzzedDataProvider& bytes, testing::Case& problem, Arguments& arguments) {
  KvView& kv = arguments.kv;
  switch (bytes.ConsumeIntegralInRange(0, 16)) {
    case 0: spoil_view(bytes, arguments.q); break;
    case 1: spoil_view(bytes, kv.k); break;
    case 2: spoil_view(bytes, kv.v); break;
    case 3: spoil_view(bytes, arguments.out); break;
    case 4: spoil_view(bytes, arguments.lse); break;
    case 5: spoil_view(bytes, arguments.sinks); break;
    case 6: spoil_view(bytes, arguments.alibi_slopes); break;
    case 7: spoil_view(bytes, arguments.bias); break;
    case 8: spoil_view(bytes, arguments.tree_mask); break;
    case 9: spoil_indices(bytes, arguments.lengths); break;
    case 10: spoil_indices(bytes, arguments.q_offsets); break;
    case 11: spoil_indices(bytes, kv.page_table); break;
    case 12: spoil_indices(bytes, kv.page_ids); break;
    case 13: spoil_indices(bytes, kv.page_indptr); break;
    case 14: spoil_indices(bytes, kv.cache_rows); break;
    case 15: kv.layout = static_cast<KvLayout>(bytes.ConsumeIntegralInRange(0, 2)); break;
    default: problem.spec.rules.window.left = make_number(bytes, 100); break;
  }
}

}  // namespace leanattn::fuzz
