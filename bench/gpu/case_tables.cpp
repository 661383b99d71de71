// The tables of case.h.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "case.h"

namespace leanattn::bench {
namespace {

constexpr std::int64_t kKeys = 1024;  // "1k"

struct Heads {
  std::int64_t num_q_heads, num_kv_heads, head_dim;
};

Case make(std::string name, Heads heads, std::vector<std::int64_t> lengths) {
  Case made;
  made.name = std::move(name);
  made.num_q_heads = heads.num_q_heads;
  made.num_kv_heads = heads.num_kv_heads;
  made.head_dim = heads.head_dim;
  made.lengths = std::move(lengths);
  return made;
}

std::vector<std::int64_t> uniform(std::int64_t batch, std::int64_t keys) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(batch), keys);
}

// Ragged batches of 512 to 128k keys: as many keys in all as those of the peers' table,
// whose lengths it does not give, and spread about evenly in the logarithm.
std::vector<std::int64_t> ragged_8() { return {131072, 512, 9001, 5417, 777, 2600, 1311, 2117}; }

std::vector<std::int64_t> ragged_32() {
  return {2150, 9913,   55346, 1269,   91409, 7083,   24618, 80829, 37278, 5937, 28339,
          4942, 3339,   21328, 11643,  15867, 103221, 1677,  2699,  909,   4082, 13617,
          512,  131072, 32541, 116395, 71362, 42613,  62900, 8401,  48611, 18425};
}

std::vector<std::int64_t> one_long(std::int64_t others) {
  std::vector<std::int64_t> lengths = uniform(others + 1, kKeys);
  lengths.front() = 128 * kKeys;
  return lengths;
}

constexpr Heads kMha32{32, 32, 128};
constexpr Heads kGqa4{32, 8, 128};
constexpr Heads kGqa8{8, 1, 128};

constexpr Heads mha_d64(std::int64_t heads) { return {heads, heads, 64}; }

void add_d64(std::vector<Case>& list) {
  for (const std::int64_t k : {1, 8, 32, 64, 256, 512}) {
    list.push_back(make(fmt::format("paper d64 H56 b1 ctx{}k", k), mha_d64(56), {k * kKeys}));
  }
  for (const std::int64_t heads : {16, 24, 64, 128}) {
    list.push_back(make(fmt::format("d64 H{} b1 ctx64k", heads), mha_d64(heads), {64 * kKeys}));
  }
  for (const std::int64_t heads : {16, 24}) {
    list.push_back(make(fmt::format("d64 H{} b1 512k", heads), mha_d64(heads), {512 * kKeys}));
  }
  for (const std::int64_t batch : {2, 4, 8, 16}) {
    list.push_back(
        make(fmt::format("d64 H32 b{} ctx64k", batch), mha_d64(32), uniform(batch, 64 * kKeys)));
  }
}

void add_d128(std::vector<Case>& list) {
  for (const std::int64_t k : {1, 4, 16, 64, 256}) {
    list.push_back(make(fmt::format("d128 MHA32 b1 ctx{}k", k), kMha32, {k * kKeys}));
  }
  for (const std::int64_t k : {1, 4, 8, 32, 128, 512}) {
    list.push_back(make(fmt::format("d128 GQA32/8 b1 ctx{}k", k), kGqa4, {k * kKeys}));
  }
  struct Batch {
    std::int64_t size, k;
  };
  for (const auto& [size, k] :
       {Batch{4, 8}, Batch{16, 4}, Batch{16, 8}, Batch{64, 2}, Batch{64, 4}}) {
    list.push_back(
        make(fmt::format("d128 GQA32/8 b{} ctx{}k", size, k), kGqa4, uniform(size, k * kKeys)));
  }
  for (const auto& [size, k] :
       {Batch{1, 8}, Batch{1, 128}, Batch{8, 16}, Batch{32, 8}, Batch{128, 2}}) {
    list.push_back(
        make(fmt::format("d128 GQA8/1 b{} ctx{}k", size, k), kGqa8, uniform(size, k * kKeys)));
  }
  for (const auto& [size, keys] : {Batch{3, 10000}, Batch{5, 7777}, Batch{7, 30001}}) {
    list.push_back(
        make(fmt::format("d128 GQA32/8 b{} ctx{}", size, keys), kGqa4, uniform(size, keys)));
  }
}

}  // namespace

std::vector<Case> peer_cases() {
  std::vector<Case> list;
  add_d64(list);
  add_d128(list);
  list.push_back(make("ragged GQA32/8 b8 512..128k", kGqa4, ragged_8()));
  list.push_back(make("ragged MHA32 d64 b8", mha_d64(32), ragged_8()));
  list.push_back(make("ragged GQA32/8 b32 512..128k", kGqa4, ragged_32()));
  list.push_back(make("ragged MHA32 d64 b32", mha_d64(32), ragged_32()));
  list.push_back(make("ragged 1x128k+31x1k GQA32/8", kGqa4, one_long(31)));
  for (Case& shape : list) {
    shape.group = "peers";
    for (const char* name :
         {"paper d64 H56 b1 ctx8k", "d64 H16 b1 ctx64k", "d128 MHA32 b1 ctx4k",
          "d128 GQA32/8 b1 ctx1k", "d128 GQA32/8 b1 ctx128k", "d128 GQA32/8 b16 ctx4k",
          "d128 GQA8/1 b1 ctx8k", "ragged 1x128k+31x1k GQA32/8"}) {
      shape.quick = shape.quick || shape.name == name;
    }
  }
  return list;
}

std::vector<Case> paper_cases(std::int64_t most_bytes) {
  std::vector<Case> list;
  for (const std::int64_t dim : {64, 128}) {
    for (const std::int64_t heads : {16, 24, 32, 40, 48, 56, 64, 96, 128}) {
      for (std::int64_t k = 1; k <= 512; k *= 2) {
        for (const std::int64_t batch : {1, 2, 4, 8, 16}) {
          Case shape = make(fmt::format("d{} H{} b{} ctx{}k", dim, heads, batch, k),
                            {heads, heads, dim}, uniform(batch, k * kKeys));
          shape.group = "paper";
          if (shape.cache_bytes() <= most_bytes) list.push_back(shape);
        }
      }
    }
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Case& a, const Case& b) { return a.cache_bytes() < b.cache_bytes(); });
  for (std::size_t i = 0; i < list.size(); ++i) list[i].quick = i % 16 == 0;
  return list;
}

std::vector<Case> feature_cases() {
  std::vector<Case> list;
  const auto add = [&](Case shape, const std::string& feature, bool quick) {
    shape.name += ": " + feature;
    shape.group = "features";
    shape.quick = quick;
    list.push_back(std::move(shape));
  };
  const Case shapes[] = {make("GQA32/8 b1 32k", kGqa4, {32 * kKeys}),
                         make("GQA32/8 b16 4k", kGqa4, uniform(16, 4 * kKeys)),
                         make("MHA32 b1 16k", kMha32, {16 * kKeys}),
                         make("d64 H32 b8 8k", mha_d64(32), uniform(8, 8 * kKeys))};
  for (const Case& shape : shapes) {
    const bool quick = &shape == shapes + 1;
    add(shape, "contiguous", quick);
    for (const std::int64_t page_size : {64, 16, 1}) {
      Case paged = shape;
      paged.page_size = page_size;
      add(paged, fmt::format("pages of {}", page_size), quick && page_size == 16);
    }
    Case invariant = shape;
    invariant.batch_invariant = true;
    add(invariant, "batch invariant", quick);
  }
  for (const std::int64_t batch : {1, 16}) {
    Case shape =
        make(fmt::format("GQA64/8 b{} 8k", batch), {64, 8, 128}, uniform(batch, 8 * kKeys));
    add(shape, "1 query", false);
    shape.q_len = 4;
    shape.causal = true;
    add(shape, "4 queries", batch == 16);
  }
  Case prefill = make("GQA32/8 b1 8k", kGqa4, {8 * kKeys});
  prefill.q_len = 8 * kKeys;
  prefill.causal = true;
  add(prefill, "causal prefill", true);
  return list;
}

}  // namespace leanattn::bench
