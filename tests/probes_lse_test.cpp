// lse is the natural log of the denominator, and merging by it is attention over all
// keys: chunks of a context give what the whole gives.
#include "probe_support.h"
#include "test_scale.h"
#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

class Lse : public Probe {};
INSTANTIATE_TEST_SUITE_P(Caches, Lse, every_cache(), cache_name);

TEST_P(Lse, IsTheNaturalLogOfTheCount) {
  for (const std::int64_t n : {1, 2, 3, 64, 128, 3072}) {
    CaseSpec spec = probe({n});
    spec.num_kv_heads = 1;
    const Case problem = build_case(spec);
    decode(problem.arguments);
    for (const float lse : read_output(problem).lse) {
      EXPECT_NEAR(lse, std::log(static_cast<double>(n)),
                  1e-6 * (1 + static_cast<double>(n) / 1000));
    }
  }
}

TEST_P(Lse, IsNotNeededForTheOutput) {
  CaseSpec spec = probe({90, 3});
  spec.q_amplitude = 1;
  const Case with = build_case(spec);
  decode(with.arguments);
  const std::vector<float> out = read_output(with).out;
  with.reset_output();
  Arguments without = with.arguments;
  without.lse = {};
  decode(without);
  EXPECT_EQ(read_output(with).out, out);
}

// Sequences of the spec as a result in f32, [sequence, head, dim].
struct Chunk {
  std::vector<float> out;
  std::vector<float> lse;

  explicit Chunk(const Case& problem) {
    const auto rows =
        static_cast<std::size_t>(problem.spec.num_queries() * problem.spec.num_q_heads());
    out.assign(rows * static_cast<std::size_t>(problem.spec.v_head_dim), NAN);
    lse.assign(rows, NAN);
    Arguments arguments = problem.arguments;
    const auto& shape = arguments.out.shape;
    arguments.out = contiguous<4, void*>(out.data(), ElementType::kFloat32, shape);
    arguments.lse =
        contiguous<3, void*>(lse.data(), ElementType::kFloat32, {shape[0], shape[1], shape[2]});
    decode(arguments, problem.rules());
  }
};

void merge_into(Chunk& into, Chunk& other, std::int64_t rows, std::int64_t heads,
                std::int64_t dim) {
  const auto out = [&](Chunk& chunk) {
    return contiguous<3, void*>(chunk.out.data(), ElementType::kFloat32, {rows, heads, dim});
  };
  const auto lse = [&](Chunk& chunk) {
    return contiguous<2, void*>(chunk.lse.data(), ElementType::kFloat32, {rows, heads});
  };
  merge_states(as_const(out(into)), as_const(lse(into)), as_const(out(other)), as_const(lse(other)),
               out(into), lse(into));
}

TEST_P(Lse, WeighsAPrefixAndASuffixRight) {
  CaseSpec spec = probe({3072});
  spec.num_kv_heads = 1;
  Chunk prefix(with_values(spec, [](auto, auto) { return 0; }));
  spec.lengths = {64};
  Chunk suffix(with_values(spec, [](auto, auto) { return 1; }));
  EXPECT_NEAR(prefix.lse[0], 8.0300841, 1e-5);
  EXPECT_NEAR(suffix.lse[0], 4.1588831, 1e-5);
  merge_into(prefix, suffix, 1, spec.num_q_heads(), 64);
  for (const float value : prefix.out) ASSERT_NEAR(value, 0.0204082, 1e-6);
  for (const float lse : prefix.lse) ASSERT_NEAR(lse, std::log(3136.0), 1e-5);
}

TEST_P(Lse, MergesChunksIntoTheWhole) {
  RandomBits bits(3);
  for (std::int64_t i = 0; i < scaled(10); ++i) {
    CaseSpec spec = probe({bits.between(2, 400), bits.between(2, 40)});
    spec.q_amplitude = 1;
    spec.out_type = spec.q_type = ElementType::kFloat32;
    spec.seed = bits.next();
    const Case whole = build_case(spec);
    const Expected expected = expect(whole);
    // Keys [0, cut) of each sequence, then the others, by hiding the rest.
    const std::int64_t cut = bits.between(0, spec.lengths[0]);
    std::vector<std::uint8_t> keep(static_cast<std::size_t>(spec.max_length()));
    Case part = build_case(spec);
    part.arguments.bias = {keep.data(),
                           ElementType::kBool,
                           {2, spec.num_q_heads(), 1, spec.max_length()},
                           {0, 0, 0, 1},
                           {}};
    const auto chunk = [&](bool first) {
      for (std::size_t j = 0; j < keep.size(); ++j) {
        keep[j] = (static_cast<std::int64_t>(j) < cut) == first;
      }
      return Chunk(part);
    };
    Chunk merged = chunk(true);
    Chunk rest = chunk(false);
    merge_into(merged, rest, 2, spec.num_q_heads(), spec.v_head_dim);
    const Comparison comparison = compare(whole, expected, {merged.out, merged.lse});
    ASSERT_TRUE(comparison.passed) << comparison.worst << " cut at " << cut;
  }
}

}  // namespace
}  // namespace leanattn::testing
