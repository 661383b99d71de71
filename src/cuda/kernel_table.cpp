#include "cuda/kernel_table.h"

#include <vector>

#include "compiled_kernels.h"
#include "leanattn/error.h"
#include "leanattn/problem.h"

namespace leanattn::cuda {

std::span<const CompiledKernel> compiled_kernels() {
  static const std::vector<CompiledKernel> table = [] {
    std::vector<CompiledKernel> all;
    const auto add = [&](std::span<const CompiledKernel> rows) {
      all.insert(all.end(), rows.begin(), rows.end());
    };
#define LEANATTN_ADD_KERNEL(Element, kHeadDim, kVHeadDim) \
  add(LeanTileKernels<Element, kHeadDim, kVHeadDim>::rows());
    LEANATTN_FOR_EACH_KERNEL(LEANATTN_ADD_KERNEL)
#undef LEANATTN_ADD_KERNEL
    return all;
  }();
  return table;
}

const CompiledKernel* find_kernel(const Problem& problem, std::int64_t rows) {
  const bool ruled = problem.rules.softcap > 0 || problem.has_alibi || problem.has_bias ||
                     problem.has_tree_mask || !(problem.scale() > 0);
  const Scores other = ruled ? Scores::kPlain : Scores::kRuled;
  const CompiledKernel* found = nullptr;
  for (const CompiledKernel& kernel : compiled_kernels()) {
    if (kernel.type != problem.q_type || kernel.head_dim != problem.head_dim ||
        kernel.v_head_dim != problem.v_head_dim || kernel.scores == other) {
      continue;
    }
    if (found == nullptr || found->tile_m() < rows) found = &kernel;
  }
  return found;
}

std::string head_dims_text(ElementType type) {
  std::string text;
  for (const CompiledKernel& kernel : compiled_kernels()) {
    if (kernel.type != type || kernel.row_tiles != 1) continue;
    text += text.empty() ? "" : ", ";
    text += kernel.head_dim == kernel.v_head_dim
                ? concat(kernel.head_dim)
                : concat("(", kernel.head_dim, ", ", kernel.v_head_dim, ")");
  }
  return text.empty() ? "none" : text;
}

}  // namespace leanattn::cuda
