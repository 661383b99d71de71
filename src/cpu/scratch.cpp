#include <cstddef>

#include "core/schedule.h"
#include "cpu/lean_tile.h"

namespace leanattn::cpu {
namespace {

/// Hands out aligned pieces of a block of memory, or only counts them.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <class T>
  T* take(std::int64_t count) {
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    used_ += aligned(static_cast<std::size_t>(count) * sizeof(T));
    return piece;
  }
  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

Scratch carve(const Problem& problem, std::int64_t tile_m, Carver& carver) {
  const std::int64_t rows = tile_m * max_shared_heads(problem, tile_m);
  Scratch scratch;
  scratch.q = carver.take<float>(rows * padded_floats(problem.head_dim));
  scratch.scores = carver.take<float>(tile_m * kBlock);
  scratch.weights = carver.take<std::uint16_t>(tile_m * kBlock);
  scratch.out = carver.take<float>(rows * padded_floats(problem.v_head_dim));
  scratch.max = carver.take<float>(rows);
  scratch.sum = carver.take<float>(rows);
  scratch.zero_row = carver.take<float>(padded_floats(problem.v_head_dim));
  scratch.rows = carver.take<BlockRows>(1);
  return scratch;
}

}  // namespace

std::int64_t scratch_bytes(const Problem& problem, std::int64_t tile_m) {
  Carver carver(nullptr);
  carve(problem, tile_m, carver);
  return static_cast<std::int64_t>(carver.used());
}

Scratch carve_scratch(const Problem& problem, std::int64_t tile_m, std::byte* memory) {
  Carver carver(memory);
  return carve(problem, tile_m, carver);
}

}  // namespace leanattn::cpu
