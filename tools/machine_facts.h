// What to write beside a measured number: machine, date, commit, compiler.
#pragma once

#include <cstdint>
#include <string>

namespace leanattn::tools {

struct MachineFacts {
  std::string cpu;                          // model, as the system names it
  std::int64_t logical_cores = 1;           // this process may run on
  std::int64_t last_level_cache_bytes = 0;  // 0: unknown
};

[[nodiscard]] MachineFacts machine_facts();

/// Now, UTC: "2026-05-30T12:00:00Z".
[[nodiscard]] std::string utc_now();

/// The commit of the sources, "-dirty" after it if they were changed; "unknown"
/// where there is no git or no repository.
[[nodiscard]] std::string source_commit();

/// "gcc 12.2.0"
[[nodiscard]] std::string compiler();

}  // namespace leanattn::tools
