// The instruction sets this build has code for, and the one in use.
#pragma once

#include <span>
#include <string_view>

#include "cpu/lean_tile.h"

namespace leanattn::cpu {

struct Isa {
  std::string_view name;  // "avx512_bf16", "avx512", "avx2", "sse4"; "neon"
  bool (*runs_here)();
  const LeanTileCode* (*code)();
};

/// Best first. The last runs on every machine of this architecture.
[[nodiscard]] std::span<const Isa> instruction_sets();

/// The best that runs here, or the one LEANATTN_ISA names. Throws InvalidArgument
/// naming those that run here if it names another. Decided at the first call.
[[nodiscard]] const Isa& instruction_set();

/// Makes `instruction_set` return the one called `name` from now on; "" decides
/// anew. For tests and benchmarks; not while calls run.
void force_instruction_set(std::string_view name);

}  // namespace leanattn::cpu
