// The launch table's file format, and which row serves a call. Needs no GPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cuda/tuning_file.h"
#include "leanattn/error.h"

namespace leanattn::cuda {
namespace {

std::vector<TuningRow> parse(const std::string& text) {
  std::istringstream stream(text);
  return parse_tuning(stream, "h200.txt");
}

// The sentence that `text` is refused with; empty if it is not.
std::string refusal(const std::string& text) {
  try {
    (void)parse(text);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(TuningFile, RowsCommentsAndEmptyLines) {
  const std::vector<TuningRow> rows = parse(
      "# made by leanattn tune\n"
      "\n"
      "  90 64 1 60 1 128 8   # small\n"
      "90\t128 4 * 3 64 1\r\n"
      "* * * * 2 65536 4");
  const std::vector<TuningRow> wanted{{90, 64, 1, 60, {1, 128, 8}},
                                      {90, 128, 4, kAny, {3, 64, 1}},
                                      {kAny, kAny, kAny, kAny, {2, 65536, 4}}};
  EXPECT_EQ(rows, wanted);
}

TEST(TuningFile, TheFirstRowThatServesDecides) {
  const std::vector<TuningRow> rows = parse(
      "90 64 1 60 1 16 1\n"
      "90 64 1 * 1 32 1\n"
      "90 128 4 * 1 48 1\n"
      "80 * * * 1 64 1\n");
  const auto tile_n = [&](int compute_capability, int v_head_dim, int row_tiles, double bytes) {
    const TuningRow* row = find_row(rows, {compute_capability, v_head_dim, row_tiles, bytes});
    return row == nullptr ? 0 : row->shape.tile_n;
  };
  EXPECT_EQ(tile_n(90, 64, 1, 0), 16);
  EXPECT_EQ(tile_n(90, 64, 1, 60e6), 16);
  EXPECT_EQ(tile_n(90, 64, 1, 60e6 + 1), 32);
  EXPECT_EQ(tile_n(90, 64, 2, 1e6), 48);
  EXPECT_EQ(tile_n(90, 80, 1, 1e6), 48);
  EXPECT_EQ(tile_n(90, 192, 1, 1e6), 0);
  EXPECT_EQ(tile_n(80, 256, 4, 1e12), 64);
  EXPECT_EQ(tile_n(86, 64, 1, 1e6), 0);
}

TEST(TuningFile, ComplaintsNameFileLineAndWhatIsAllowed) {
  struct Wrong {
    const char* text;
    std::vector<std::string> parts;
  };
  const Wrong all[] = {
      {"", {"no rows", "v_head_dim"}},
      {"# nothing\n", {"no rows"}},
      {"\n90 64 1 60 1 128\n", {"line 2", "6 words", "7", "tile_n"}},
      {"90 64 1 60 1 128 8 9", {"line 1", "8 words"}},
      {"9.0 64 1 60 1 128 8", {"compute_capability", "9.0", "10 to 999"}},
      {"90 0 1 60 1 128 8", {"v_head_dim", "0", "*"}},
      {"90 64 x 60 1 128 8", {"row_tiles", "x", "1 to 64"}},
      {"90 64 1 99999999999999 1 128 8", {"max_mb", "99999999999999"}},
      {"90 64 1 60 9 128 8", {"blocks", "9", "1 to 8"}},
      {"90 64 1 60 * 128 8", {"blocks", "*", "1 to 8"}},
      {"90 64 1 60 1 100 8", {"tile_n", "100", "multiples of 16"}},
      {"90 64 1 60 1 128 3", {"cluster", "3", "1, 2, 4 and 8"}},
  };
  for (const Wrong& wrong : all) {
    const std::string sentence = refusal(wrong.text);
    EXPECT_NE(sentence.find("h200.txt"), std::string::npos) << wrong.text << ": " << sentence;
    for (const std::string& part : wrong.parts) {
      EXPECT_NE(sentence.find(part), std::string::npos) << sentence << "\n  lacks " << part;
    }
  }
}

TEST(TuningFile, IsReadFromDisk) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "leanattn_tuning_test.txt";
  std::ofstream(path) << "* * * * 2 64 1\n";
  EXPECT_EQ(read_tuning_file(path.string()),
            (std::vector<TuningRow>{{kAny, kAny, kAny, kAny, {2, 64, 1}}}));
  std::filesystem::remove(path);
  EXPECT_THROW((void)read_tuning_file(path.string()), InvalidArgument);
}

TEST(Tuning, TheTableServesEveryCall) {
  for (const int compute_capability : {80, 86, 89, 90, 100, 120}) {
    for (const int v_head_dim : {64, 128, 256}) {
      for (const double bytes : {0.0, 1e6, 1e12}) {
        const LaunchShape shape = launch_shape({compute_capability, v_head_dim, 1, bytes});
        EXPECT_EQ(cuda::complaint(shape), "");
      }
    }
  }
}

}  // namespace
}  // namespace leanattn::cuda
