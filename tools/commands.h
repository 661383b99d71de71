// The subcommands of `leanattn`, one file each. A command throws what went wrong;
// main turns that into one line on stderr and exit status 2.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace leanattn::tools {

/// What commands share.
struct Invocation {
  std::string command_line;  // as it was typed
  int exit_status = 0;       // 0: fine; 1: ran, and the answer was wrong
};

// Adds a command to `app`, which runs it after parsing. `invocation` outlives `app`.
void add_info(CLI::App& app, Invocation& invocation);
void add_run(CLI::App& app, Invocation& invocation);
void add_verify(CLI::App& app, Invocation& invocation);
void add_plan(CLI::App& app, Invocation& invocation);
void add_bench(CLI::App& app, Invocation& invocation);
void add_tune(CLI::App& app, Invocation& invocation);

}  // namespace leanattn::tools
