// A safetensors file as the arguments of a call.
//
//   q            [b, m, H, d], or [1, total, H, d] with q_offsets [b + 1]
//   k, v         [rows, capacity, Hk, d] (NHD) or [rows, Hk, capacity, d] (HND);
//                pages instead of rows with page_table, or page_ids and page_indptr
//   lengths      [b], optional: the capacity
//   page_table   [b, width]             page_ids [n], page_indptr [b + 1]
//   cache_rows   [b]                    sinks, alibi_slopes [H]
//   bias         [b, H, m, n]; sizes of 1 are broadcast; BOOL: which keys to keep
//   tree_mask    [b, m, m] BOOL
//   out, lse     what the answer should be: [b, m, H, dv], [b, m, H]
//
// A tensor with another name is refused: nothing in a file is silently ignored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "leanattn/problem.h"
#include "safetensors.h"

namespace leanattn::tools {

enum class CacheOrder : std::uint8_t { kNhd, kHnd };

/// The arguments of a call with the memory they point into. Movable.
class ProblemFile {
 public:
  /// Throws InvalidArgument or TypeMismatch for what is missing, unknown or does not
  /// have the rank or type of its place.
  ProblemFile(Safetensors file, CacheOrder order);

  [[nodiscard]] const Safetensors& file() const { return file_; }
  /// `out` is of q's type, or f32 where the file's `out` is; `lse` is always given.
  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  /// What the file says the answer is, or null.
  [[nodiscard]] const StoredTensor* expected_out() const { return file_.find("out"); }
  [[nodiscard]] const StoredTensor* expected_lse() const { return file_.find("lse"); }

  /// The answer in `out` and `lse` as tensors called so.
  [[nodiscard]] std::vector<StoredTensor> answer() const;

 private:
  void set_queries();
  void set_cache(CacheOrder order);
  void set_lengths();
  void set_rules();
  void set_output();

  Safetensors file_;
  Arguments arguments_;
  std::vector<std::int64_t> full_lengths_;  // where the file has no lengths
  std::vector<std::byte> out_;
  std::vector<std::byte> lse_;
};

/// The element type of a stored tensor. Throws TypeMismatch if it is none of f32,
/// f16, bf16 and, where `bool_too`, bool.
[[nodiscard]] ElementType element_type_of(const StoredTensor& tensor, bool bool_too = false);

}  // namespace leanattn::tools
