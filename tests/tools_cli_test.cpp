// The command line as a user meets it: the built program is run, its output, its
// one line of complaint and its exit status are looked at.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "leanattn/half.h"
#include "problem_file.h"
#include "safetensors.h"

namespace leanattn::tools {
namespace {

struct Ran {
  int status = -1;
  std::string out;
  std::string err;
};

std::filesystem::path temporary(const std::string& name) {
  return std::filesystem::temp_directory_path() /
         ("leanattn_cli_" + std::to_string(::getpid()) + "_" + name);
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Runs `leanattn ARGUMENTS`, after the environment variables in `environment`.
Ran leanattn(const std::string& arguments, const std::string& environment = "") {
  const auto err = temporary("stderr");
  const std::string command =
      environment + " '" LEANATTN_CLI "' " + arguments + " 2>'" + err.string() + "'";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  Ran ran;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe)) {
    ran.out.append(buffer.data(), count);
  }
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ran.err = content_of(err);
  std::filesystem::remove(err);
  return ran;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::string kCapture = LEANATTN_SOURCE_DIR "/examples/data/smollm2_135m_layer14.safetensors";

TEST(CommandLine, BadUseIsOneLineAndStatus2) {
  for (const char* arguments :
       {"", "nonsense", "plan --no-such-option", "plan --context abc", "plan --window 1",
        "plan --heads 3 --kv-heads 2", "plan --partition nonsense", "plan --workers 0",
        "plan --svg /nonexistent/folder/plan.svg", "run", "run /nonexistent.safetensors",
        "run --layout xyz file", "verify --backend nonsense", "verify --cases -1",
        "verify --isa nonsense", "bench --workload nonsense", "bench --type f64",
        "bench --filter nonsense", "plan --context 9999999999999999999999"}) {
    const Ran ran = leanattn(arguments);
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(ran.err.rfind("leanattn: ", 0), 0u) << arguments << ": " << ran.err;
    EXPECT_EQ(ran.err.find('\n'), ran.err.size() - 1) << arguments << ": " << ran.err;
    EXPECT_EQ(ran.out, "") << arguments;
  }
}

// Whether or not there is a device.
TEST(CommandLine, TuneRefusesAtOnce) {
  for (const char* arguments : {"tune --seconds 0", "tune --output /nonexistent/folder/file"}) {
    const Ran ran = leanattn(arguments);
    EXPECT_EQ(ran.status, 2) << arguments;
    EXPECT_EQ(ran.err.rfind("leanattn: ", 0), 0u) << ran.err;
    EXPECT_EQ(ran.out, "") << arguments;
  }
}

TEST(CommandLine, HelpTeaches) {
  EXPECT_EQ(leanattn("--version").out.rfind("leanattn ", 0), 0u);
  for (const char* command : {"", "info", "run", "verify", "plan", "bench", "tune"}) {
    const Ran ran = leanattn(std::string(command) + " --help");
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_TRUE(contains(ran.out, "Examples:")) << command;
    EXPECT_EQ(ran.err, "") << command;
  }
}

TEST(CommandLine, RunReproducesTheCapture) {
  for (const char* partition : {"auto", "one_tile", "fixed_split --splits 3",
                                "stream_k --workers 7", "stream_k --batch-invariant"}) {
    const Ran ran = leanattn("run '" + kCapture + "' --partition " + partition);
    EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
    EXPECT_TRUE(contains(ran.out, "same  ")) << ran.out;
    EXPECT_TRUE(contains(ran.out, "cosine difference")) << ran.out;
  }
}

// What a run wrote is what a run reads and finds the same; with another value it differs.
TEST(CommandLine, RunWritesItsAnswerAndNoticesAnotherOne) {
  const auto answer = temporary("answer.safetensors");
  const auto changed = temporary("changed.safetensors");
  const Ran wrote = leanattn("run '" + kCapture + "' --json --out '" + answer.string() + "'");
  ASSERT_EQ(wrote.status, 0) << wrote.err;
  EXPECT_TRUE(contains(wrote.out, "\"within\": true")) << wrote.out;

  const Safetensors capture = Safetensors::read(kCapture);
  const Safetensors written = Safetensors::read(answer.string());
  std::vector<StoredTensor> tensors;
  for (const char* name : {"q", "k", "v", "lengths"}) tensors.push_back(*capture.find(name));
  tensors.push_back(*written.find("out"));
  tensors.push_back(*written.find("lse"));
  write_safetensors(changed.string(), tensors);
  EXPECT_EQ(leanattn("run '" + changed.string() + "'").status, 0);

  std::vector<float> values(static_cast<std::size_t>(tensors[4].num_elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] =
        load_float(tensors[4].data, element_type_of(tensors[4]), static_cast<std::int64_t>(i));
  }
  values[3 * 64 + 5] += 0.5f;
  tensors[4].data = reinterpret_cast<const std::byte*>(values.data());
  ASSERT_EQ(tensors[4].type, StoredType::kF32);
  write_safetensors(changed.string(), tensors);
  const Ran off = leanattn("run '" + changed.string() + "'");
  EXPECT_EQ(off.status, 1);
  EXPECT_TRUE(contains(off.out, "out at sequence 0, query 0, head 3, dim 5")) << off.out;

  tensors.push_back(tensors[0]);
  tensors.back().name = "querry";
  write_safetensors(changed.string(), tensors);
  EXPECT_TRUE(
      contains(leanattn("run '" + changed.string() + "'").err, "'querry' would be ignored"));
  std::filesystem::remove(answer);
  std::filesystem::remove(changed);
}

TEST(CommandLine, VerifyCountsItsCases) {
  const Ran ran = leanattn("verify --cases 25 --seed 7");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_TRUE(contains(ran.out, "\n25 passed, 0 failed\n")) << ran.out;
}

TEST(CommandLine, PlanDrawsTextSvgAndJson) {
  const auto svg = temporary("plan.svg");
  const Ran text = leanattn("plan --svg '" + svg.string() + "'", "COLUMNS=60");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "balance 40%")) << text.out;
  EXPECT_TRUE(contains(text.out, "balance 100%")) << text.out;
  EXPECT_FALSE(contains(text.out, "\x1b")) << "colours without a terminal";
  EXPECT_TRUE(contains(content_of(svg), "<desc>leanattn plan --svg"));
  std::filesystem::remove(svg);
  const Ran json = leanattn("plan --partition stream_k --json");
  EXPECT_TRUE(contains(json.out, "\"balance\": 1.0")) << json.out;
}

TEST(CommandLine, BenchMeasuresWhatACallCosts) {
  const Ran ran = leanattn("bench --workload overhead");
  EXPECT_EQ(ran.status, 0) << ran.out << ran.err;
  EXPECT_TRUE(contains(ran.out, "plan + run")) << ran.out;
  EXPECT_TRUE(contains(leanattn("bench --list").out, "gqa8_one_kv_head_64k"));
}

}  // namespace
}  // namespace leanattn::tools
