// See bench_workload.h.
#include "bench_workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace leanattn::tools {
namespace {

constexpr std::int64_t kKeys = 1024;  // "1k"

// One sequence at several lengths, in k; `quick_at` is the one that --quick runs.
void add_lengths(std::vector<Workload>& list, const Workload& base, std::int64_t quick_at,
                 std::initializer_list<std::int64_t> lengths) {
  for (const std::int64_t length : lengths) {
    Workload workload = base;
    workload.name += fmt::format("_{}k", length);
    workload.lengths = {length * kKeys};
    workload.quick = length == quick_at;
    list.push_back(workload);
  }
}

Workload uniform(std::string name, std::string about, std::int64_t num_q_heads,
                 std::int64_t num_kv_heads, std::int64_t head_dim) {
  Workload workload;
  workload.name = std::move(name);
  workload.about = std::move(about);
  workload.num_q_heads = num_q_heads;
  workload.num_kv_heads = num_kv_heads;
  workload.head_dim = head_dim;
  return workload;
}

// What ggml's flash attention (August 2026) takes on a 2-core AVX-512 machine with 2
// threads, an f16 cache and a mask, by its own test tool. Its caches stay in the
// 260 MB last-level cache there, so these are warm.
void add_peers(std::vector<Workload>& list) {
  struct Row {
    const char* name;
    std::int64_t num_q_heads, num_kv_heads, head_dim, keys;
    double peer_us;
  };
  constexpr Row kRows[] = {
      {"ggml_d128_mha8", 8, 8, 128, 16384, 1427},    {"ggml_d128_gqa4", 32, 8, 128, 16384, 5950},
      {"ggml_d64_mha8", 8, 8, 64, 16384, 11381},     {"ggml_d64_gqa4", 32, 8, 64, 16384, 45398},
      {"ggml_d256_gqa16", 32, 2, 256, 20000, 11368},
  };
  for (const Row& row : kRows) {
    for (const CacheOrder order : {CacheOrder::kNhd, CacheOrder::kHnd}) {
      const char* suffix = order == CacheOrder::kNhd ? "nhd" : "hnd";
      Workload workload = uniform(fmt::format("{}_{}", row.name, suffix),
                                  fmt::format("ggml took {:.0f} µs: 2-core AVX-512, 2 threads, "
                                              "August 2026, cache in the last-level cache",
                                              row.peer_us),
                                  row.num_q_heads, row.num_kv_heads, row.head_dim);
      workload.lengths = {row.keys};
      workload.order = order;
      workload.warm = true;
      workload.type = ElementType::kFloat16;
      workload.peer_us = row.peer_us;
      list.push_back(workload);
    }
  }
}

void add_batches(std::vector<Workload>& list) {
  Workload ragged = uniform("ragged", "one long sequence among short ones, paged", 32, 8, 128);
  ragged.lengths.assign(16, kKeys);
  ragged.lengths.front() = 64 * kKeys;
  ragged.page_size = 64;
  ragged.quick = true;
  list.push_back(ragged);

  Workload batch = uniform("batch_32x2k", "a uniform batch, GQA 4", 32, 8, 128);
  batch.lengths.assign(32, 2 * kKeys);
  list.push_back(batch);

  Workload odd = uniform("batch_5x7777", "a batch of an odd length, GQA 4", 32, 8, 128);
  odd.lengths.assign(5, 7777);
  list.push_back(odd);
}

void add_longer_queries(std::vector<Workload>& list) {
  Workload verification = uniform("speculative_4", "4 drafted tokens to verify, GQA 4", 32, 8, 128);
  verification.q_len = 4;
  verification.causal = true;
  verification.lengths = {16 * kKeys};
  list.push_back(verification);

  Workload chunk = uniform("prefill_chunk", "128 queries at the end of 4k keys", 32, 8, 128);
  chunk.q_len = 128;
  chunk.causal = true;
  chunk.lengths = {4 * kKeys};
  list.push_back(chunk);

  Workload prefill = uniform("prefill_1k", "causal prefill of 1k tokens", 32, 8, 64);
  prefill.q_len = kKeys;
  prefill.causal = true;
  prefill.lengths = {kKeys};
  list.push_back(prefill);
}

}  // namespace

std::int64_t Workload::num_keys() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

std::int64_t Workload::cache_bytes(ElementType element) const {
  return num_keys() * num_kv_heads * 2 * head_dim * size_of(element);
}

std::string Workload::shape_text() const {
  const auto [shortest, longest] = std::minmax_element(lengths.begin(), lengths.end());
  const std::string keys = *shortest == *longest ? fmt::format("{}", *longest)
                                                 : fmt::format("{} to {}", *shortest, *longest);
  return fmt::format("{} × {} keys, {}/{} heads of {}{}{}{}", lengths.size(), keys, num_q_heads,
                     num_kv_heads, head_dim, q_len > 1 ? fmt::format(", {} queries", q_len) : "",
                     causal ? ", causal" : "",
                     page_size > 0 ? fmt::format(", pages of {}", page_size) : "");
}

std::vector<Workload> all_workloads() {
  std::vector<Workload> list;
  add_lengths(list, uniform("mha_d64", "32 heads of their own", 32, 32, 64), 32, {8, 32, 64});
  add_lengths(list, uniform("mha_d128", "32 heads of their own", 32, 32, 128), 16, {4, 16, 64});
  add_lengths(list, uniform("gqa4_d128", "4 query heads per KV head", 32, 8, 128), 64, {4, 16, 64});
  add_lengths(list, uniform("gqa8_d128", "8 query heads per KV head", 64, 8, 128), 64, {4, 16, 64});
  add_lengths(list,
              uniform("gqa8_one_kv_head", "one KV head: one_tile keeps one worker busy", 8, 1, 128),
              64, {4, 16, 64});
  add_lengths(list, uniform("mha_one_head", "one head", 1, 1, 128), 0, {4, 64});
  add_batches(list);
  add_longer_queries(list);
  add_peers(list);
  return list;
}

}  // namespace leanattn::tools
