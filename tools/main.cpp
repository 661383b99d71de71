// leanattn: the command line. Bad use and what the library throws become one
// sentence on stderr and exit status 2.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

#include "commands.h"

namespace {

using leanattn::tools::Invocation;

constexpr const char* kDescription =
    "Exact attention for the decode phase of transformers, with equal shares for every worker.";

constexpr const char* kExamples = R"(Examples:
  leanattn info                                    what this machine offers
  leanattn run examples/data/*.safetensors         compute a real capture and compare
  leanattn plan --heads 2 --context 2560 --workers 5   draw who computes what
  leanattn plan --context 64k,1k,1k --svg plan.svg     the same as a picture
  leanattn verify --cases 1000                     random problems against the reference
  leanattn bench --quick                           the three partitions on this machine
  leanattn tune                                    how this GPU's kernels are best launched

Environment:
  LEANATTN_BACKEND   the backend that "auto" means (leanattn info lists them)
  LEANATTN_ISA       the widest instruction set the cpu backend may use
  LEANATTN_TUNING    the file by which the cuda backend launches its kernels (leanattn tune)
  NO_COLOR           no colours

Exit status: 0 fine, 1 an answer was wrong, 2 bad use or an error.
`leanattn COMMAND --help` explains a command.)";

std::string command_line(int argc, char** argv) {
  std::string line = "leanattn";
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'$*?;&|<>()") == std::string::npos;
    line += plain ? " " + word : " '" + word + "'";
  }
  return line;
}

int report(std::string sentence) {
  std::replace(sentence.begin(), sentence.end(), '\n', ' ');
  fmt::print(stderr, "leanattn: {}\n", sentence);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  Invocation invocation{command_line(argc, argv), 0};
  CLI::App app{kDescription, "leanattn"};
  app.set_version_flag("--version", "leanattn " LEANATTN_VERSION);
  app.footer(kExamples);
  app.require_subcommand(1);
  leanattn::tools::add_info(app, invocation);
  leanattn::tools::add_run(app, invocation);
  leanattn::tools::add_verify(app, invocation);
  leanattn::tools::add_plan(app, invocation);
  leanattn::tools::add_bench(app, invocation);
  leanattn::tools::add_tune(app, invocation);
  try {
    app.parse(argc, argv);
    return std::fflush(stdout) == 0 ? invocation.exit_status : report("stdout cannot be written");
  } catch (const CLI::Success& success) {  // --help and --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(fmt::format("{} (see leanattn --help)", error.what()));
  } catch (const std::bad_alloc&) {
    return report("there is not enough memory for this");
  } catch (const std::exception& error) {
    return report(error.what());
  }
}
