// Bits: the same on every run with anything beside it, however threads are driven;
// and, batch_invariant, the same whoever shares the batch.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "probe_support.h"
#include "test_scale.h"
#include "testing/random_bits.h"

// clang's OpenMP runtime does not give back all memory of a team that changed its
// size; LeakSanitizer asks here what to pass over.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: its name is given
  return "leak:libomp";
}

namespace leanattn::testing {
namespace {

// Threads that keep the machine busy while they live.
class BusyThreads {
 public:
  explicit BusyThreads(int count) {
    for (int i = 0; i < count; ++i) {
      threads_.emplace_back([this] {
        while (!stop_.load(std::memory_order_relaxed)) std::this_thread::yield();
      });
    }
  }
  ~BusyThreads() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  BusyThreads(const BusyThreads&) = delete;
  BusyThreads& operator=(const BusyThreads&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

Buffer workspace_of(const Plan& plan) { return Buffer((plan.workspace_bytes + 63) / 64 * 64); }

class SameBits : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, SameBits, every_cache(), cache_name);

TEST_P(SameBits, OnEveryRunBesideBusyThreads) {
  CaseSpec spec = probe({700, 130, 3});
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  const BusyThreads busy(3);
  for (const bool batch_invariant : {false, true}) {
    for (const std::int64_t workers : {2, 7, 92}) {
      PlanOptions options;
      options.partition = PartitionChoice::kStreamK;
      options.num_workers = workers;
      options.num_threads = 4;
      options.batch_invariant = batch_invariant;
      const Plan made = plan(problem_of(problem.arguments), options);
      const Buffer workspace = workspace_of(made);
      run(made, problem.arguments, workspace.bytes());
      const std::vector<std::byte> first = output_bytes(problem);
      for (std::int64_t i = 0; i < scaled(60); ++i) {
        problem.reset_output();
        run(made, problem.arguments, workspace.bytes());
        ASSERT_EQ(output_bytes(problem), first) << "run " << i << ", " << describe(options);
      }
    }
  }
}

// begin and work, by threads of the caller or one after another in any order.
TEST_P(SameBits, HoweverTheThreadsAreDriven) {
  CaseSpec spec = probe({700, 0, 130, 3});
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  RandomBits bits(1);
  for (PlanOptions options : every_plan(700)) {
    options.num_threads = 5;
    const Plan made = plan(problem_of(problem.arguments), options);
    const Buffer workspace = workspace_of(made);
    problem.reset_output();
    run(made, problem.arguments, workspace.bytes());
    const std::vector<std::byte> first = output_bytes(problem);

    std::vector<std::int64_t> order(static_cast<std::size_t>(made.num_threads));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    for (int round = 0; round < 3; ++round) {
      bits.shuffle(order);
      problem.reset_output();
      workspace.reset();
      begin(made, problem.arguments, workspace.bytes());
      for (const std::int64_t thread : order) {
        work(made, problem.arguments, workspace.bytes(), thread);
      }
      ASSERT_EQ(output_bytes(problem), first) << describe(options);
    }
    problem.reset_output();
    workspace.reset();
    begin(made, problem.arguments, workspace.bytes());
    std::vector<std::thread> threads;
    for (const std::int64_t thread : order) {
      threads.emplace_back(
          [&, thread] { work(made, problem.arguments, workspace.bytes(), thread); });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(output_bytes(problem), first) << describe(options);
  }
}

TEST_P(SameBits, WhateverTheNumberOfThreads) {
  CaseSpec spec = probe({700, 130});
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  for (PlanOptions options : every_plan(700)) {
    if (options.partition == PartitionChoice::kAuto) continue;  // may choose other workers
    std::vector<std::byte> first;
    for (const std::int64_t threads : {1, 2, 3, 8}) {
      options.num_threads = threads;
      const Plan made = plan(problem_of(problem.arguments), options);
      const Buffer workspace = workspace_of(made);
      problem.reset_output();
      run(made, problem.arguments, workspace.bytes());
      if (first.empty()) first = output_bytes(problem);
      ASSERT_EQ(output_bytes(problem), first) << describe(options);
    }
  }
}

TEST_P(SameBits, OneTileAndOneSplit) {
  CaseSpec spec = probe({700, 130, 0});
  spec.q_amplitude = 1;
  const Case problem = build_case(spec);
  for (const Backend* backend : backends_here()) {
    if (!computes(*backend, problem)) continue;
    PlanOptions options;
    options.backend = backend->name();
    options.partition = PartitionChoice::kOneTile;
    decode_case(problem, options);
    const std::vector<std::byte> first = output_bytes(problem);
    options.partition = PartitionChoice::kFixedSplit;
    options.num_splits = 1;
    problem.reset_output();
    decode_case(problem, options);
    EXPECT_EQ(output_bytes(problem), first) << backend->name();
  }
}

// Sequences whose length and values follow from their number in [0, 8) alone:
// `members` are the numbers of those in the batch.
class Batch {
 public:
  Batch(CaseSpec spec, const std::vector<std::int64_t>& members) {
    spec.lengths.clear();
    for (const std::int64_t member : members) spec.lengths.push_back(length_of(member));
    spec.q_lens.assign(members.size(), 1);
    problem_ = std::make_unique<Case>(build_case(spec));
    for (std::size_t b = 0; b < members.size(); ++b) fill(static_cast<std::int64_t>(b), members[b]);
  }

  [[nodiscard]] Result run_with(const PlanOptions& options) const {
    problem_->reset_output();
    decode_case(*problem_, options);
    return read_output(*problem_);
  }

  static std::int64_t length_of(std::int64_t member) {
    return std::vector<std::int64_t>{
        1500, 3, 2100, 130, 1024, 1025, 64, 1}[static_cast<std::size_t>(member)];
  }

 private:
  void fill(std::int64_t b, std::int64_t member) const {
    RandomBits bits(static_cast<std::uint64_t>(member) + 77);
    const CaseSpec& spec = problem_->spec;
    const auto row = [&](void* data, ElementType type, std::int64_t dim) {
      for (std::int64_t d = 0; d < dim; ++d) store_float(data, type, d, bits.normal());
    };
    for (std::int64_t h = 0; h < spec.num_q_heads(); ++h) {
      row(problem_->q_row(b, 0, h), spec.q_type, spec.head_dim);
    }
    for (std::int64_t head = 0; head < spec.num_kv_heads; ++head) {
      for (std::int64_t j = 0; j < length_of(member); ++j) {
        row(problem_->k_row(b, j, head), spec.k_type, spec.head_dim);
        row(problem_->v_row(b, j, head), spec.v_type, spec.v_head_dim);
      }
    }
  }

  std::unique_ptr<Case> problem_;
};

class BatchInvariant : public Probe {
 protected:
  // Of the smallest head dim that a backend has.
  static CaseSpec small(std::int64_t group_size, const Backend& backend) {
    CaseSpec spec = probe({1});
    spec.num_kv_heads = 1;
    spec.group_size = group_size;
    const bool on_host = backend.device_kind() == Device::Kind::kHost;
    spec.head_dim = spec.v_head_dim = on_host ? 32 : 64;
    return spec;
  }
};
INSTANTIATE_TEST_SUITE_P(Caches, BatchInvariant, every_cache(), cache_name);

// The rows of sequence b of a result.
std::vector<float> rows_of(const Result& result, const CaseSpec& spec, std::int64_t b) {
  const std::int64_t heads = spec.num_q_heads();
  const auto out = result.out.begin() + b * heads * spec.v_head_dim;
  std::vector<float> rows(out, out + heads * spec.v_head_dim);
  rows.insert(rows.end(), result.lse.begin() + b * heads, result.lse.begin() + (b + 1) * heads);
  return rows;
}

std::vector<PlanOptions> invariant_plans() {
  std::vector<PlanOptions> all = every_partition(7);
  for (PlanOptions& options : all) options.batch_invariant = true;
  return all;
}

// On a backend, each sequence alone and then in batches.
void expect_rows_as_alone(const Backend& backend, const CaseSpec& spec) {
  std::vector<PlanOptions> plans = invariant_plans();
  for (PlanOptions& options : plans) options.backend = backend.name();
  std::vector<std::vector<float>> alone;
  for (std::int64_t member = 0; member < 8; ++member) {
    alone.push_back(rows_of(Batch(spec, {member}).run_with(plans.front()), spec, 0));
  }
  for (const std::size_t size : {2, 3, 32, 33, 64}) {
    std::vector<std::int64_t> members(size);
    for (std::size_t b = 0; b < size; ++b)
      members[b] = static_cast<std::int64_t>((b * 5 + size) % 8);
    const Batch batch(spec, members);
    for (std::size_t p = 0; p < plans.size(); p += size < 32 ? 1 : 5) {
      const Result result = batch.run_with(plans[p]);
      for (std::size_t b = 0; b < size; ++b) {
        ASSERT_EQ(rows_of(result, spec, static_cast<std::int64_t>(b)),
                  alone[static_cast<std::size_t>(members[b])])
            << "sequence " << b << " of " << size << ", " << describe(plans[p]);
      }
    }
  }
}

TEST_P(BatchInvariant, ARowDoesNotDependOnItsBatchMates) {
  for (const std::int64_t group : {1, 8}) {
    for (const Backend* backend : backends_here()) {
      const CaseSpec spec = small(group, *backend);
      if (computes(*backend, build_case(spec))) expect_rows_as_alone(*backend, spec);
    }
  }
}

// On a backend, two sequences in caches of other capacities and pages.
void expect_rows_wherever_they_lie(const Backend& backend, CaseSpec spec) {
  PlanOptions options;
  options.backend = backend.name();
  options.batch_invariant = true;
  options.partition = PartitionChoice::kStreamK;
  options.num_workers = 3;
  const Result first = Batch(spec, {2, 3}).run_with(options);
  for (const std::int64_t spare : {0, 40, 5000}) {
    for (const std::int64_t page : {1, 16, 100, 256}) {
      spec.page_size = page;
      spec.spare = spec.paged() ? spare / page : spare;
      spec.seed = static_cast<std::uint64_t>(spare + page);
      const Result other = Batch(spec, {2, 3}).run_with(options);
      ASSERT_EQ(first.out, other.out) << "page size " << page << ", spare " << spare;
      ASSERT_EQ(first.lse, other.lse);
    }
  }
}

TEST_P(BatchInvariant, NorOnPagesOrCapacity) {
  for (const Backend* backend : backends_here()) {
    const CaseSpec spec = small(2, *backend);
    if (computes(*backend, build_case(spec))) expect_rows_wherever_they_lie(*backend, spec);
  }
}

}  // namespace
}  // namespace leanattn::testing
