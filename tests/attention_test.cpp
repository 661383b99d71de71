// The random table: problems over all features, with every partition and on every
// instruction set, against the double-precision reference.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cpu/isa.h"
#include "probe_support.h"
#include "test_scale.h"

namespace leanattn::testing {
namespace {

// Puts the chosen instruction set back at the end of a test.
class ForcedIsa {
 public:
  explicit ForcedIsa(std::string_view name) { cpu::force_instruction_set(name); }
  ~ForcedIsa() { cpu::force_instruction_set(""); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

std::vector<std::string> instruction_sets_here() {
  std::vector<std::string> names;
  for (const cpu::Isa& isa : cpu::instruction_sets()) {
    if (isa.runs_here()) names.emplace_back(isa.name);
  }
  return names;
}

class EveryInstructionSet : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cpu, EveryInstructionSet, ::testing::ValuesIn(instruction_sets_here()),
                         [](const auto& isa) { return isa.param; });

TEST_P(EveryInstructionSet, ComputesRandomProblems) {
  const ForcedIsa forced(GetParam());
  ASSERT_EQ(cpu::instruction_set().name, GetParam());
  for (std::int64_t i = 0; i < scaled(600); ++i) {
    const auto seed = static_cast<std::uint64_t>(i) + 1000;
    const Case problem = make_case(seed);
    const PlanOptions options = draw_options(seed, backend("cpu"));
    const Outcome outcome = check_case(problem, options);
    EXPECT_TRUE(outcome.passed && !outcome.refused)
        << outcome.message << "\n  " << describe(options) << "\n  " << describe(problem);
  }
}

TEST(RandomProblems, AgreeWithEveryPartition) {
  for (const Backend* backend : backends_here()) {
    const SpecLimits limits = limits_of(*backend);
    for (std::int64_t i = 0; i < scaled(150) && !::testing::Test::HasFailure(); ++i) {
      const Case problem = build_case(draw_spec(static_cast<std::uint64_t>(i) + 500'000, limits));
      expect_right_on(*backend, problem, expect(problem), every_plan(problem.spec.max_length()));
    }
  }
}

// Of hosts this is EveryInstructionSet's.
TEST(RandomProblems, AreRightOnEveryDevice) {
  for (const Backend* backend : backends_here()) {
    if (backend->device_kind() == Device::Kind::kHost) continue;
    const SpecLimits limits = limits_of(*backend);
    for (std::int64_t i = 0; i < scaled(600); ++i) {
      const auto seed = static_cast<std::uint64_t>(i) + 1000;
      const Case problem = build_case(draw_spec(seed, limits));
      expect_right_on(*backend, problem, expect(problem), {draw_options(seed, *backend)});
    }
  }
}

TEST(RandomProblems, AreTheSameForTheSameSeed) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Case first = make_case(seed);
    const Case second = make_case(seed);
    EXPECT_EQ(describe(first), describe(second));
    EXPECT_EQ(first.input_hash(), second.input_hash());
  }
}

// The comparison must see a wrong answer: one key too many, one too few, a swap.
TEST(RandomProblems, AreComparedSharply) {
  std::int64_t looked_at = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Case problem = make_case(seed);
    const Expected expected = expect(problem);
    Result wrong = expected.exact;
    EXPECT_TRUE(compare(problem, expected, wrong).passed) << describe(problem);
    if (wrong.out.empty()) continue;
    const std::size_t at = seed % wrong.out.size();
    const float unit = expected.out_unit[at];
    const auto allowed = static_cast<float>(2 * expected.plain_units);
    wrong.out[at] += 1.5f * allowed * unit;
    if (wrong.out[at] == expected.exact.out[at]) continue;
    ++looked_at;
    EXPECT_FALSE(compare(problem, expected, wrong).passed) << describe(problem);
    wrong.out[at] = NAN;
    EXPECT_FALSE(compare(problem, expected, wrong).passed) << describe(problem);
    EXPECT_LT(expected.plain_units, 16) << describe(problem);
  }
  EXPECT_GT(looked_at, 200);
}

TEST(InstructionSets, AreListedBestFirstAndRefusedByName) {
  const std::vector<std::string> names = instruction_sets_here();
  ASSERT_FALSE(names.empty());
  {
    const ForcedIsa forced("");
    EXPECT_NE(backend("cpu").machine().description.find(cpu::instruction_set().name),
              std::string::npos);
  }
  try {
    cpu::force_instruction_set("none");
    FAIL() << "there is no instruction set called none";
  } catch (const InvalidArgument& error) {
    for (const std::string& name : names) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace leanattn::testing
