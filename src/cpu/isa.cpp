#include "cpu/isa.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

#include "cpu/lean_tile_code.h"
#include "cpu/lean_tile_targets.h"
#include "hwy/targets.h"
#include "leanattn/error.h"

namespace leanattn::cpu {
namespace {

bool always() { return true; }

#if HWY_ARCH_X86
bool has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
bool has_avx2() { return (hwy::SupportedTargets() & HWY_AVX2) != 0; }

constexpr std::array kIsas{
    Isa{"avx512_bf16", has_avx512_bf16, avx512_bf16_code},
    Isa{"avx512", has_avx512, avx512_code},
    Isa{"avx2", has_avx2, avx2_code},
    Isa{"sse4", always, baseline_code},
};
#elif HWY_ARCH_ARM
constexpr std::array kIsas{Isa{"neon", always, baseline_code}};
#else
constexpr std::array kIsas{Isa{"baseline", always, baseline_code}};
#endif

std::atomic<const Isa*> chosen{nullptr};

const Isa& best() {
  for (const Isa& isa : kIsas) {
    if (isa.runs_here()) return isa;
  }
  return kIsas.back();
}

const Isa& named(std::string_view name, std::string_view asked_by) {
  std::string allowed;
  for (const Isa& isa : kIsas) {
    if (!isa.runs_here()) continue;
    if (isa.name == name) return isa;
    allowed += (allowed.empty() ? "" : ", ");
    allowed += isa.name;
  }
  throw InvalidArgument(concat(asked_by, " is ", name, "; this machine runs ", allowed));
}

const Isa& decide() {
  const char* name = std::getenv("LEANATTN_ISA");
  return name == nullptr || *name == 0 ? best() : named(name, "LEANATTN_ISA");
}

}  // namespace

std::span<const Isa> instruction_sets() { return kIsas; }

const Isa& instruction_set() {
  const Isa* isa = chosen.load(std::memory_order_acquire);
  if (isa == nullptr) {
    isa = &decide();
    chosen.store(isa, std::memory_order_release);
  }
  return *isa;
}

void force_instruction_set(std::string_view name) {
  chosen.store(name.empty() ? nullptr : &named(name, "instruction set"), std::memory_order_release);
}

}  // namespace leanattn::cpu
