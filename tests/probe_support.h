// The set-up of the probes: small problems whose answer is known in closed form, on
// every kind of cache, with every partition. See Probe.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "leanattn/attention.h"
#include "leanattn/half.h"
#include "testing/check_case.h"

namespace leanattn::testing {

inline constexpr double kNoKeys = -std::numeric_limits<double>::infinity();

/// An element type and a way to store keys.
struct CacheKind {
  std::string name;
  ElementType type;
  KvLayout layout;
  KvOrder order;
  std::int64_t page_size;

  friend void PrintTo(const CacheKind& kind, std::ostream* out) { *out << kind.name; }
};

inline std::vector<CacheKind> cache_kinds(const std::vector<ElementType>& types) {
  std::vector<CacheKind> kinds;
  for (const ElementType type : types) {
    const std::string name(name_of(type));
    kinds.push_back({name + "_contiguous", type, KvLayout::kContiguous, KvOrder::kNhd, 16});
    kinds.push_back({name + "_head_major", type, KvLayout::kContiguous, KvOrder::kHnd, 16});
    kinds.push_back({name + "_pages_of_1", type, KvLayout::kPagedCsr, KvOrder::kPadded, 1});
    kinds.push_back({name + "_pages_of_16", type, KvLayout::kPagedDense, KvOrder::kHnd, 16});
    kinds.push_back(
        {name + "_pages_of_256", type, KvLayout::kPagedDense, KvOrder::kInterleaved, 256});
  }
  return kinds;
}

inline auto every_cache() {
  return ::testing::ValuesIn(
      cache_kinds({ElementType::kFloat32, ElementType::kFloat16, ElementType::kBFloat16}));
}

inline std::string cache_name(const ::testing::TestParamInfo<CacheKind>& info) {
  return info.param.name;
}

/// one_tile; fixed_split 1, 2, 3, 7 and one worker per key; stream_k over 1 to 132
/// workers; and what `auto` makes of it.
inline std::vector<PlanOptions> every_partition(std::int64_t max_kv_len) {
  std::vector<PlanOptions> all(2);
  all[1].partition = PartitionChoice::kOneTile;
  for (const std::int64_t splits : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3},
                                    std::int64_t{7}, std::max<std::int64_t>(max_kv_len, 16)}) {
    PlanOptions options;
    options.partition = PartitionChoice::kFixedSplit;
    options.num_splits = std::min<std::int64_t>(splits, 600);
    all.push_back(options);
  }
  for (const std::int64_t workers : {1, 2, 7, 76, 92, 114, 132}) {
    PlanOptions options;
    options.partition = PartitionChoice::kStreamK;
    options.num_workers = workers;
    all.push_back(options);
  }
  return all;
}

/// Every partition, with and without batch_invariant.
inline std::vector<PlanOptions> every_plan(std::int64_t max_kv_len) {
  std::vector<PlanOptions> all = every_partition(max_kv_len);
  for (std::size_t i = 0, size = all.size(); i < size; ++i) {
    all.push_back(all[i]);
    all.back().batch_invariant = true;
  }
  return all;
}

/// Whether a backend is to compute the case: a host's all, a device's what it has a
/// kernel for.
inline bool computes(const Backend& backend, const Case& problem) {
  return backend.device_kind() == Device::Kind::kHost ||
         static_cast<bool>(backend.supports(problem_on(backend, problem)));
}

/// Checks the case against the reference with each of `plans` on one backend.
inline void expect_right_on(const Backend& backend, const Case& problem, const Expected& expected,
                            const std::vector<PlanOptions>& plans) {
  for (PlanOptions options : plans) {
    options.backend = backend.name();
    const Outcome outcome = check_case(problem, expected, options);
    EXPECT_TRUE(outcome.passed && !outcome.refused)
        << outcome.message << "\n  " << describe(options) << "\n  " << describe(problem);
    if (!outcome.passed) return;
  }
}

/// The same on every backend of this machine that computes it.
inline void expect_right(const Case& problem, const Expected& expected,
                         const std::vector<PlanOptions>& plans) {
  for (const Backend* backend : backends_here()) {
    if (computes(*backend, problem)) expect_right_on(*backend, problem, expected, plans);
  }
}

/// The same with every plan.
inline void expect_right(const Case& problem) {
  expect_right(problem, expect(problem), every_plan(problem.spec.max_length()));
}

/// What all elements of an output row are, and its lse.
struct RowAnswer {
  double out;
  double lse;
};
using Answer = std::function<RowAnswer(std::int64_t b, std::int64_t i, std::int64_t h)>;

/// Checks that the reference gives `answer` within the roundoff of V's type, and
/// that every plan agrees with the reference.
inline void expect_answer(const Case& problem, const Answer& answer) {
  const CaseSpec& spec = problem.spec;
  const Result exact = expect(problem).exact;
  const double roundoff = spec.v_type == ElementType::kBFloat16  ? 0x1p-8
                          : spec.v_type == ElementType::kFloat16 ? 0x1p-11
                                                                 : 1e-6;
  std::size_t row = 0;
  for (std::int64_t b = 0; b < spec.batch(); ++b) {
    for (std::int64_t i = 0; i < spec.q_lens[static_cast<std::size_t>(b)]; ++i) {
      for (std::int64_t h = 0; h < spec.num_q_heads(); ++h, ++row) {
        const RowAnswer right = answer(b, i, h);
        const std::string where = concat("sequence ", b, ", query ", i, ", head ", h);
        for (std::int64_t d = 0; d < spec.v_head_dim; ++d) {
          const auto at =
              row * static_cast<std::size_t>(spec.v_head_dim) + static_cast<std::size_t>(d);
          ASSERT_NEAR(exact.out[at], right.out, roundoff * std::fabs(right.out) + 1e-6) << where;
        }
        if (right.lse == kNoKeys) {
          ASSERT_EQ(exact.lse[row], kNoKeys) << where;
        } else {
          ASSERT_NEAR(exact.lse[row], right.lse, roundoff * std::fabs(right.lse) + 2e-6) << where;
        }
      }
    }
  }
  expect_right(problem);
}

/// A probe on one kind of cache.
class Probe : public ::testing::TestWithParam<CacheKind> {
 protected:
  /// One query per sequence that is 0, so that every score is 0; 2 KV heads of 2
  /// query heads; head_dim 64. To be changed before it is built.
  static CaseSpec probe(const std::vector<std::int64_t>& lengths, std::int64_t q_len = 1) {
    const CacheKind& kind = GetParam();
    CaseSpec spec;
    spec.lengths = lengths;
    spec.q_lens.assign(lengths.size(), q_len);
    spec.num_kv_heads = 2;
    spec.group_size = 2;
    spec.q_type = spec.k_type = spec.v_type = spec.out_type = kind.type;
    spec.layout = kind.layout;
    spec.kv_order = kind.order;
    spec.page_size = kind.page_size;
    spec.cache_rows = kind.order == KvOrder::kHnd && kind.layout == KvLayout::kContiguous;
    spec.spare = 3;
    spec.spare_columns = 2;
    spec.q_amplitude = 0;
    return spec;
  }

  /// The case, with every element of V row j set to value(b, j). Values that no query
  /// sees stay poison.
  template <class Value>
  static Case with_values(const CaseSpec& spec, const Value& value) {
    Case problem = build_case(spec);
    for (std::int64_t b = 0; b < spec.batch(); ++b) {
      for (std::int64_t j = 0; j < spec.lengths[static_cast<std::size_t>(b)]; ++j) {
        for (std::int64_t head = 0; head < spec.num_kv_heads; ++head) {
          if (!std::isfinite(load_float(problem.v_row(b, j, head), spec.v_type, 0))) continue;
          problem.set_v(b, j, head, static_cast<float>(value(b, j)));
        }
      }
    }
    return problem;
  }

  /// V row j of every sequence holds j.
  static Case counting_values(const CaseSpec& spec) {
    return with_values(spec, [](std::int64_t, std::int64_t j) { return j; });
  }
};

}  // namespace leanattn::testing
