// The exceptions of leanattn and `check`, which raises them.
//
// A message is one sentence that names the argument, its value and what is
// allowed. The library throws; it never prints, exits or aborts.
#pragma once

#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>

namespace leanattn {

/// Where a line of source stands. std::source_location in small, which clang has
/// from 16 on only.
struct SourceLocation {
  const char* file = "";
  std::uint32_t line = 0;

  /// The place of the caller; as a default argument, of the caller's caller.
  [[nodiscard]] static constexpr SourceLocation current(
      const char* file = __builtin_FILE(), std::uint32_t line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

/// Base of everything the library throws on purpose.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& sentence, SourceLocation where = SourceLocation::current())
      : std::runtime_error(sentence), where_(where) {}

  /// Where in the library the check stands; for bug reports, not for users.
  [[nodiscard]] const SourceLocation& where() const noexcept { return where_; }

 private:
  SourceLocation where_;
};

/// An argument has a value that no backend accepts.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// An argument has an element type or memory kind that does not fit its place.
class TypeMismatch : public Error {
 public:
  using Error::Error;
};

/// The problem is valid, but the backend at hand does not compute it.
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// The text of `parts`, one after the other.
template <class... Parts>
[[nodiscard]] std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return std::move(text).str();
}

/// A condition and the place where it was stated.
struct Condition {
  bool holds;
  SourceLocation where;

  // Implicit on purpose: `check(a == b, …)` records the caller's line.
  Condition(bool is_true, SourceLocation stated_at = SourceLocation::current())
      : holds(is_true), where(stated_at) {}
};

/// Throws `Kind` with the text of `parts` unless `condition` holds. The text is
/// made only on failure.
template <class Kind = InvalidArgument, class... Parts>
void check(Condition condition, const Parts&... parts) {
  if (!condition.holds) [[unlikely]] {
    throw Kind(concat(parts...), condition.where);
  }
}

}  // namespace leanattn
