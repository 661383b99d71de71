// What check_problem and check_arguments refuse, sentence by sentence, and what they
// must let pass: what no query sees is nobody's business.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core_helpers.h"
#include "leanattn/attention.h"

namespace leanattn {
namespace {

using testing_core::Call;
using testing_core::kInfinity;
using testing_core::sentence_of;

constexpr auto kF32 = ElementType::kFloat32;
constexpr auto kBool = ElementType::kBool;

Problem small_problem() {
  Problem problem;
  problem.batch = 2;
  problem.max_q_len = 3;
  problem.num_queries = 6;
  problem.num_q_heads = 4;
  problem.num_kv_heads = 2;
  problem.head_dim = 64;
  problem.v_head_dim = 32;
  problem.max_kv_len = 100;
  return problem;
}

struct WrongProblem {
  const char* name;
  std::function<void(Problem&)> spoil;
  const char* sentence;
};

class CoreCheckProblem : public testing::TestWithParam<WrongProblem> {};

TEST_P(CoreCheckProblem, Refuses) {
  Problem problem = small_problem();
  EXPECT_NO_THROW(check_problem(problem));
  GetParam().spoil(problem);
  EXPECT_EQ(sentence_of([&] { check_problem(problem); }), GetParam().sentence);
}

const WrongProblem kWrongProblems[] = {
    {"batch", [](Problem& p) { p.batch = -1; }, "batch is -1; it must be from 0 to 2^48"},
    {"max_q_len", [](Problem& p) { p.max_q_len = -2; },
     "max_q_len is -2; it must be from 0 to 2^48"},
    {"huge", [](Problem& p) { p.batch = std::int64_t{1} << 60; },
     "batch is 1152921504606846976; it must be from 0 to 2^48"},
    {"product", [](Problem& p) { p.batch = p.max_q_len = std::int64_t{1} << 40; },
     "batch·max_q_len is 1099511627776·1099511627776; it must be at most 2^60"},
    {"num_queries", [](Problem& p) { p.num_queries = 5; },
     "num_queries is 5; with batch 2 and max_q_len 3 it must be 6"},
    {"ragged",
     [](Problem& p) {
       p.ragged_q = true;
       p.num_queries = 7;
     },
     "num_queries is 7; with batch 2 and max_q_len 3 it must be at most 6"},
    {"heads", [](Problem& p) { p.num_kv_heads = 3; },
     "num_q_heads is 4 and num_kv_heads is 3; num_q_heads must be a multiple of num_kv_heads"},
    {"no_heads", [](Problem& p) { p.num_kv_heads = 0; },
     "num_kv_heads is 0; it must be from 1 to 2^48"},
    {"head_dim", [](Problem& p) { p.head_dim = 0; }, "head_dim is 0; it must be from 1 to 2^48"},
    {"v_head_dim", [](Problem& p) { p.v_head_dim = 0; },
     "v_head_dim is 0; it must be from 1 to 2^48"},
    {"max_kv_len", [](Problem& p) { p.max_kv_len = -1; },
     "max_kv_len is -1; it must be from 0 to 2^48"},
    {"page_size", [](Problem& p) { p.layout = KvLayout::kPagedCsr; },
     "page_size is 0; it must be from 1 to 2^48"},
    {"no_pages", [](Problem& p) { p.page_size = 16; },
     "page_size is 16; it must be 0 where the layout is contiguous, which has no pages"},
    {"softcap", [](Problem& p) { p.rules.softcap = -1.0f; },
     "softcap is -1; it must be finite, and positive or 0 for none"},
    {"softcap_infinite", [](Problem& p) { p.rules.softcap = kInfinity; },
     "softcap is inf; it must be finite, and positive or 0 for none"},
    {"scale", [](Problem& p) { p.rules.scale = kInfinity; }, "scale is inf; it must be finite"},
    {"window", [](Problem& p) { p.rules.window.left = -2; },
     "window.left is -2; it must be from 0 to 2^48, or -1 for no bound"},
};

std::string name_of_case(const testing::TestParamInfo<WrongProblem>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, CoreCheckProblem, testing::ValuesIn(kWrongProblems), name_of_case);

TEST(CoreCheckTypes, AreFloatingAndOutIsOfQOrF32) {
  Problem problem = small_problem();
  problem.v_type = kBool;
  EXPECT_EQ(sentence_of<TypeMismatch>([&] { check_problem(problem); }),
            "v_type is bool; it must be f32, f16 or bf16");
  problem = small_problem();
  problem.q_type = ElementType::kBFloat16;
  EXPECT_NO_THROW(check_problem(problem));
  problem.out_type = ElementType::kFloat16;
  EXPECT_EQ(sentence_of<TypeMismatch>([&] { check_problem(problem); }),
            "out_type is f16; it must be f32 or q_type, which is bf16");
}

TEST(CoreProblem, IsReadOffTheArguments) {
  Call call({5, 9, 0}, 2, 6, 3, 4, 7);
  ScoreRules rules;
  rules.softcap = 3.0f;
  Problem problem = problem_of(call.arguments, rules);
  EXPECT_EQ(problem.batch, 3);
  EXPECT_EQ(problem.max_q_len, 2);
  EXPECT_EQ(problem.num_queries, 6);
  EXPECT_EQ(problem.num_q_heads, 6);
  EXPECT_EQ(problem.num_kv_heads, 3);
  EXPECT_EQ(problem.head_dim, 4);
  EXPECT_EQ(problem.v_head_dim, 7);
  EXPECT_EQ(problem.max_kv_len, 9);
  EXPECT_EQ(problem.page_size, 0);
  EXPECT_EQ(problem.rules.softcap, 3.0f);
  EXPECT_FALSE(problem.ragged_q || problem.has_bias || problem.has_sinks);
  EXPECT_EQ(problem.scale(), 0.5f);
  problem.rules.scale = 0.0f;
  EXPECT_EQ(problem.scale(), 0.0f);

  call.arguments.lengths.device = {Device::Kind::kDevice, 0};
  call.arguments.kv.k.shape[1] = 12;  // only the capacity can be known
  EXPECT_EQ(problem_of(call.arguments).max_kv_len, 12);
}

/// A call of two sequences with every optional tensor, plus a spoiler.
struct Full {
  Call call{{3, 5}, 2, 4, 2, 3, 2};
  std::vector<float> heads = std::vector<float>(4, 0.0f);
  std::vector<float> bias = std::vector<float>(2 * 4 * 2 * 5, 0.0f);
  std::vector<std::uint8_t> mask = std::vector<std::uint8_t>(8, 1);
  Problem problem;

  Full() {
    Arguments& arguments = call.arguments;
    arguments.sinks = contiguous<1, const void*>(heads.data(), kF32, {4});
    arguments.alibi_slopes = arguments.sinks;
    arguments.bias = contiguous<4, const void*>(bias.data(), kF32, {2, 4, 2, 5});
    arguments.tree_mask = contiguous<3, const void*>(mask.data(), kBool, {2, 2, 2});
    problem = problem_of(arguments);
  }
};

struct WrongArguments {
  const char* name;
  std::function<void(Full&)> spoil;
  const char* sentence;
};

class CoreCheckArguments : public testing::TestWithParam<WrongArguments> {};

TEST_P(CoreCheckArguments, RefusesAndWritesNothing) {
  Full full;
  EXPECT_NO_THROW(check_arguments(full.problem, full.call.arguments));
  GetParam().spoil(full);
  std::string sentence;
  try {
    check_arguments(full.problem, full.call.arguments);
  } catch (const Error& error) {
    sentence = error.what();
  }
  EXPECT_EQ(sentence, GetParam().sentence);
  for (const float x : full.call.out) EXPECT_TRUE(std::isnan(x));
  for (const float x : full.call.lse) EXPECT_TRUE(std::isnan(x));
}

const std::int32_t kTable[2] = {0, 0};
const std::int64_t kRows[2] = {1, 2};

const WrongArguments kWrongArguments[] = {
    {"q_shape", [](Full& f) { f.call.arguments.q.shape[1] = 1; },
     "q has shape [2, 1, 4, 3]; it must be [2, 2, 4, 3]"},
    {"q_type", [](Full& f) { f.call.arguments.q.type = ElementType::kFloat16; },
     "q is f16; it must be f32"},
    {"q_stride", [](Full& f) { f.call.arguments.q.strides[3] = 2; },
     "q has stride 2 in its last dimension; it must be 1"},
    {"q_device",
     [](Full& f) {
       f.call.arguments.q.device = {Device::Kind::kDevice, 3};
     },
     "q lies in memory of device 3; it must lie in host memory"},
    {"q_memory", [](Full& f) { f.call.arguments.q.data = nullptr; },
     "q has no memory; with shape [2, 2, 4, 3] it must be given"},
    {"out_shape", [](Full& f) { f.call.arguments.out.shape[3] = 3; },
     "out has shape [2, 2, 4, 3]; it must be [2, 2, 4, 2]"},
    {"out_type", [](Full& f) { f.call.arguments.out.type = ElementType::kBFloat16; },
     "out is bf16; it must be f32"},
    {"out_broadcast", [](Full& f) { f.call.arguments.out.strides[1] = 0; },
     "out has stride 0 in dimension 1; it must be another, because out is written"},
    {"out_memory", [](Full& f) { f.call.arguments.out.data = nullptr; },
     "out has no memory; with shape [2, 2, 4, 2] it must be given"},
    {"lse_type", [](Full& f) { f.call.arguments.lse.type = ElementType::kFloat16; },
     "lse is f16; it must be f32"},
    {"lse_shape", [](Full& f) { f.call.arguments.lse.shape[2] = 2; },
     "lse has shape [2, 2, 2]; it must be [2, 2, 4]"},
    {"k_heads", [](Full& f) { f.call.arguments.kv.k.shape[2] = 1; },
     "k has shape [2, 5, 1, 3]; it must be [2, 5, 2, 3]"},
    {"v_keys", [](Full& f) { f.call.arguments.kv.v.shape[1] = 4; },
     "v is [2, 4, 2] in its first three dimensions; it must be as k, which is [2, 5, 2]"},
    {"v_stride", [](Full& f) { f.call.arguments.kv.v.strides[3] = 0; },
     "v has stride 0 in its last dimension; it must be 1"},
    {"k_rows", [](Full& f) { f.call.arguments.kv.k.shape[0] = f.call.arguments.kv.v.shape[0] = 1; },
     "k has 1 cache rows; it must have 2, one for each sequence"},
    {"k_device",
     [](Full& f) {
       f.call.arguments.kv.k.device = {Device::Kind::kDevice, 0};
     },
     "k lies in memory of device 0; it must lie in host memory"},
    {"layout", [](Full& f) { f.call.arguments.kv.layout = KvLayout::kPagedCsr; },
     "the layout of kv is paged (CSR); it must be contiguous"},
    {"page_table", [](Full& f) { f.call.arguments.kv.page_table = index_table(kTable, 2, 1); },
     "page_table is given, but the layout is contiguous; it must be left out, because it would be "
     "ignored"},
    {"cache_rows", [](Full& f) { f.call.arguments.kv.cache_rows = indices(kRows, 2); },
     "cache_rows[1] is 2; it must be at least 0 and below 2, the rows of the cache"},
    {"lengths_missing", [](Full& f) { f.call.arguments.lengths.data = nullptr; },
     "lengths has no memory; its 1 by 2 entries must be given"},
    {"lengths_size", [](Full& f) { f.call.arguments.lengths.columns = 1; },
     "lengths is 1 by 1; it must be 1 by 2"},
    {"length_negative", [](Full& f) { f.call.lengths[1] = -1; },
     "lengths[1] is -1; it must be from 0 to 5, the keys that sequence 1 has room for"},
    {"length_above_capacity", [](Full& f) { f.call.lengths[0] = 6; },
     "lengths[0] is 6; it must be from 0 to 5, the keys that sequence 0 has room for"},
    {"length_above_plan", [](Full& f) { f.problem.max_kv_len = 4; },
     "lengths[1] is 5; it must be at most max_kv_len, which is 4"},
    {"q_offsets", [](Full& f) { f.call.arguments.q_offsets = indices(kTable, 2); },
     "q_offsets is given, but ragged_q of the problem is false; it must be left out, because it "
     "would be ignored"},
    {"sinks_unannounced", [](Full& f) { f.problem.has_sinks = false; },
     "sinks is given, but has_sinks of the problem is false; it must be left out, because it would "
     "be ignored"},
    {"sinks_missing", [](Full& f) { f.call.arguments.sinks.data = nullptr; },
     "sinks is not given, but has_sinks of the problem is true; it must be given"},
    {"sinks_shape", [](Full& f) { f.call.arguments.sinks.shape[0] = 2; },
     "sinks has shape [2]; it must be [4]"},
    {"alibi_type", [](Full& f) { f.call.arguments.alibi_slopes.type = kBool; },
     "alibi_slopes is bool; it must be f32, f16 or bf16"},
    {"alibi_unannounced", [](Full& f) { f.problem.has_alibi = false; },
     "alibi_slopes is given, but has_alibi of the problem is false; it must be left out, because "
     "it "
     "would be ignored"},
    {"bias_keys", [](Full& f) { f.call.arguments.bias.shape[3] = 4; },
     "bias has extent 4 in dimension 3; it must be at least 5, the most keys of a sequence"},
    {"bias_queries", [](Full& f) { f.call.arguments.bias.shape[2] = 1; },
     "bias has extent 1 in dimension 2; it must be at least 2, the most queries of a sequence"},
    {"bias_heads", [](Full& f) { f.call.arguments.bias.shape[1] = 1; },
     "bias has shape [2, 1, 2, 5]; it must be [2, 4, 2, 5]"},
    {"tree_type", [](Full& f) { f.call.arguments.tree_mask.type = kF32; },
     "tree_mask is f32; it must be bool"},
    {"tree_extent", [](Full& f) { f.call.arguments.tree_mask.shape[2] = 1; },
     "tree_mask has extent 1 in dimension 2; it must be at least 2, the most queries of a "
     "sequence"},
    {"tree_missing", [](Full& f) { f.call.arguments.tree_mask.data = nullptr; },
     "tree_mask is not given, but has_tree_mask of the problem is true; it must be given"},
};

std::string name_of_arguments(const testing::TestParamInfo<WrongArguments>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(All, CoreCheckArguments, testing::ValuesIn(kWrongArguments),
                         name_of_arguments);

TEST(CoreCheckAlignment, AnElementAtAnOddAddressIsRefused) {
  Full full;
  full.call.arguments.q.data = reinterpret_cast<const std::byte*>(full.call.q.data()) + 1;
  EXPECT_NE(sentence_of([&] {
              check_arguments(full.problem, full.call.arguments);
            }).find("it must be a multiple of 4, the bytes of an element"),
            std::string::npos);
}

TEST(CoreCheckStrides, BroadcastBiasAndLargerExtentsPass) {
  Full full;
  Arguments& arguments = full.call.arguments;
  arguments.bias.shape[2] = 7;
  arguments.bias.shape[3] = 9;
  arguments.bias.strides = {0, 0, 0, 0};
  arguments.tree_mask.shape = {2, 5, 6};
  arguments.tree_mask.strides = {0, 0, 0};
  EXPECT_NO_THROW(check_arguments(full.problem, arguments));
}

TEST(CoreCheckStrides, ALastDimensionOfOneMayHaveAnyStride) {
  Call call({3}, 1, 1, 1, 1, 1);
  const Problem problem = problem_of(call.arguments);
  call.arguments.q.strides[3] = call.arguments.kv.k.strides[3] = 77;
  call.arguments.kv.v.strides[3] = call.arguments.out.strides[3] = 0;
  EXPECT_NO_THROW(check_arguments(problem, call.arguments));
}

TEST(CoreCheckStrides, NothingNeedsNoMemory) {
  Arguments arguments;
  arguments.q.shape = {0, 1, 4, 64};
  arguments.out.shape = {0, 1, 4, 64};
  arguments.kv.k.shape = arguments.kv.v.shape = {0, 0, 2, 64};
  const Problem problem = problem_of(arguments);
  EXPECT_NO_THROW(check_problem(problem));
  EXPECT_NO_THROW(check_arguments(problem, arguments));
}

TEST(CoreCheckDevice, MemoryOfADeviceIsNotRead) {
  Call call({3, 5}, 1, 2, 1);
  const Device device{Device::Kind::kDevice, 0};
  Arguments& arguments = call.arguments;
  arguments.q.device = arguments.kv.k.device = arguments.kv.v.device = device;
  arguments.out.device = arguments.lse.device = arguments.lengths.device = device;
  arguments.lengths.data = reinterpret_cast<const void*>(std::uintptr_t{16});
  const Problem problem = problem_of(arguments);
  EXPECT_EQ(problem.max_kv_len, 5);
  EXPECT_NO_THROW(check_arguments(problem, arguments));
  arguments.lengths.device = {};
  EXPECT_EQ(sentence_of<TypeMismatch>([&] { check_arguments(problem, arguments); }),
            "lengths lies in host memory; it must lie in memory of device 0");
}

/// Ragged queries over `offsets`, of 4 rows.
std::string sentence_for_offsets(const std::vector<std::int32_t>& offsets,
                                 std::int64_t max_q_len = 4) {
  Call call({3, 3, 3, 3});
  Arguments& arguments = call.arguments;
  arguments.q.shape = arguments.out.shape = {1, 4, 1, 2};
  arguments.q.strides = arguments.out.strides = {8, 2, 2, 1};
  arguments.lse.shape = {1, 4, 1};
  arguments.lse.strides = {4, 1, 1};
  arguments.q_offsets = indices(offsets.data(), 5);
  Problem problem = problem_of(arguments);
  problem.max_q_len = max_q_len;
  try {
    check_arguments(problem, arguments);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "fine";
}

TEST(CoreCheckOffsets, RiseFromZeroToTheNumberOfQueries) {
  EXPECT_EQ(sentence_for_offsets({0, 1, 1, 4, 4}), "fine");
  EXPECT_EQ(sentence_for_offsets({1, 1, 1, 4, 4}), "q_offsets[0] is 1; it must be 0");
  EXPECT_EQ(sentence_for_offsets({0, 2, 1, 4, 4}),
            "q_offsets[2] is 1; it must be at least q_offsets[1], which is 2");
  EXPECT_EQ(sentence_for_offsets({0, 1, 1, 3, 3}),
            "q_offsets[4] is 3; it must be 4, the number of rows it divides");
  EXPECT_EQ(sentence_for_offsets({0, 1, 1, 4, 4}, 2),
            "q_offsets gives sequence 2 3 queries; it must be at most max_q_len, which is 2");
}

}  // namespace
}  // namespace leanattn
