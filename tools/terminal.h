// What a terminal can do, and a progress bar that is silent elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace leanattn::tools {

/// Whether stdout shows colours: a terminal, NO_COLOR unset or empty, TERM not "dumb".
[[nodiscard]] bool colours();

/// Columns of the terminal on stdout; COLUMNS, else 100, where there is none.
[[nodiscard]] int terminal_width();

/// A line on stderr that shows how far a long command is. Prints nothing unless
/// stderr is a terminal; leaves nothing behind.
class ProgressBar {
 public:
  ProgressBar(std::string_view what, std::int64_t total);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the total, with a word on what comes now.
  void show(std::int64_t done, std::string_view now = {});
  /// Removes the line, e.g. before something else is printed.
  void clear();

 private:
  std::string what_;
  std::int64_t total_;
  bool visible_;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace leanattn::tools
