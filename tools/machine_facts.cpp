// See machine_facts.h.
#include "machine_facts.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <thread>

namespace leanattn::tools {
namespace {

std::string cpu_model() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown CPU";
}

std::int64_t allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<std::int64_t>(std::thread::hardware_concurrency());
}

// The first line that a shell command prints; empty if it fails.
std::string first_line_of(const std::string& command) {
  struct Close {
    void operator()(std::FILE* pipe) const { ::pclose(pipe); }
  };
  const std::unique_ptr<std::FILE, Close> pipe(::popen((command + " 2>/dev/null").c_str(), "r"));
  std::array<char, 256> buffer{};
  if (!pipe || std::fgets(buffer.data(), buffer.size(), pipe.get()) == nullptr) return {};
  std::string line = buffer.data();
  while (!line.empty() && line.back() == '\n') line.pop_back();
  return line;
}

}  // namespace

MachineFacts machine_facts() {
  const long cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return {cpu_model(), allowed_cores(), cache > 0 ? cache : 0};
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string source_commit() {
  const std::string git = "git -C '" LEANATTN_SOURCE_DIR "' ";
  const std::string commit = first_line_of(git + "rev-parse --short=12 HEAD");
  if (commit.empty()) return "unknown";
  const bool dirty = !first_line_of(git + "status --porcelain --untracked-files=no").empty();
  return commit + (dirty ? "-dirty" : "");
}

std::string compiler() {
#if defined(__clang__)
  return fmt::format("clang {}", __clang_version__);
#else
  return fmt::format("gcc {}", __VERSION__);
#endif
}

}  // namespace leanattn::tools
