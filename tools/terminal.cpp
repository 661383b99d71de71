// See terminal.h.
#include "terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace leanattn::tools {

bool colours() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

int terminal_width() {
  constexpr int kDefault = 100;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const int value = columns == nullptr ? 0 : std::atoi(columns);
  return value > 0 ? value : kDefault;
}

ProgressBar::ProgressBar(std::string_view what, std::int64_t total)
    : what_(what),
      total_(std::max<std::int64_t>(total, 1)),
      visible_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::show(std::int64_t done, std::string_view now) {
  constexpr auto kInterval = std::chrono::milliseconds(50);
  constexpr std::int64_t kCells = 28;
  const auto time = std::chrono::steady_clock::now();
  if (!visible_ || time - last_ < kInterval) return;
  last_ = time;
  const std::int64_t full = kCells * std::min(done, total_) / total_;
  std::string bar;
  for (std::int64_t i = 0; i < kCells; ++i) bar += i < full ? "█" : "░";
  fmt::print(stderr, "\r\x1b[2K{} {} {}/{} {}", what_, bar, done, total_, now);
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (visible_) {
    fmt::print(stderr, "\r\x1b[2K");
    std::fflush(stderr);
  }
}

}  // namespace leanattn::tools
