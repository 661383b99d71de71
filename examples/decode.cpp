#include <cstdio>
#include <vector>

#include "leanattn/attention.h"

int main() {
  // One decode step: a query of 32 heads against 1000 keys in 8 KV heads of 128.
  std::vector<float> q(32 * 128, 0.5f), k(1000 * 8 * 128, 0.25f), v(k.size(), 1.0f), out(q.size());
  const std::int32_t length = 1000;
  const auto f32 = leanattn::ElementType::kFloat32;
  leanattn::Arguments call;
  call.q = leanattn::contiguous<4, const void*>(q.data(), f32, {1, 1, 32, 128});
  call.kv.k = leanattn::contiguous<4, const void*>(k.data(), f32, {1, 1000, 8, 128});
  call.kv.v = leanattn::contiguous<4, const void*>(v.data(), f32, {1, 1000, 8, 128});
  call.lengths = leanattn::indices(&length, 1);
  call.out = leanattn::contiguous<4, void*>(out.data(), f32, {1, 1, 32, 128});
  leanattn::decode(call);
  std::printf("%g\n", out[0]);  // the mean of equal values: 1
}
