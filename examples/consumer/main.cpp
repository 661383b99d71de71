// Plans once and runs a growing cache through the plan, as a decoder does.
#include <cstdio>
#include <vector>

#include "leanattn/attention.h"

struct alignas(leanattn::kWorkspaceAlignment) Block {
  std::byte bytes[leanattn::kWorkspaceAlignment];
};

int main() {
  constexpr std::int64_t kCapacity = 4096;  // keys of 3 KV heads of 64, for 9 query heads
  std::vector<float> q(9 * 64), k(kCapacity * 3 * 64), v(k.size(), 3.0f), out(9 * 64), lse(9);
  std::int32_t length = 0;
  const auto f32 = leanattn::ElementType::kFloat32;
  leanattn::Arguments call;
  call.q = leanattn::contiguous<4, const void*>(q.data(), f32, {1, 1, 9, 64});
  call.kv.k = leanattn::contiguous<4, const void*>(k.data(), f32, {1, kCapacity, 3, 64});
  call.kv.v = leanattn::contiguous<4, const void*>(v.data(), f32, {1, kCapacity, 3, 64});
  call.lengths = leanattn::indices(&length, 1);
  call.out = leanattn::contiguous<4, void*>(out.data(), f32, {1, 1, 9, 64});
  call.lse = leanattn::contiguous<3, void*>(lse.data(), f32, {1, 1, 9});

  leanattn::Problem problem = leanattn::problem_of(call);
  problem.max_kv_len = kCapacity;  // the lengths may grow up to here
  const leanattn::Plan plan = leanattn::plan(problem);
  std::puts(leanattn::explain(plan).c_str());
  std::vector<Block> workspace(plan.workspace_bytes / sizeof(Block) + 1);
  for (length = 1; length <= kCapacity; length *= 16) {
    leanattn::run(plan, call, std::as_writable_bytes(std::span(workspace)));
    std::printf("%4d keys: out %g, lse %.4f\n", length, out[0], lse[0]);  // 3 and ln(keys)
  }
}
