#include "cuda/tuning_file.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include "cuda/call.h"
#include "leanattn/error.h"

namespace leanattn::cuda {
namespace {

constexpr std::string_view kColumns =
    "compute_capability v_head_dim row_tiles max_mb blocks tile_n cluster";

/// One line of a file: what is read of it, and complaints that say where it stands.
class Line {
 public:
  Line(const std::string& file, int number, const std::string& text)
      : file_(file), number_(number) {
    std::istringstream words(text.substr(0, text.find('#')));
    for (std::string word; words >> word;) words_.push_back(word);
  }

  [[nodiscard]] bool empty() const { return words_.empty(); }

  [[nodiscard]] TuningRow row() const {
    check(words_.size() == 7, place(), " has ", words_.size(), " words; allowed are 7: ", kColumns);
    TuningRow row;
    row.compute_capability = number(0, "compute_capability", 10, 999, true);
    row.most_v_head_dim = number(1, "v_head_dim", 1, 65536, true);
    row.most_row_tiles = number(2, "row_tiles", 1, 64, true);
    row.most_megabytes = number(3, "max_mb", 1, 100'000'000, true);
    row.shape.blocks_per_sm = number(4, "blocks", 1, 8, false);
    row.shape.tile_n = number(5, "tile_n", 16, 65536, false);
    row.shape.cluster = number(6, "cluster", 1, kMostClusterBlocks, false);
    const std::string wrong = complaint(row.shape);
    check(wrong.empty(), place(), ": ", wrong);
    return row;
  }

 private:
  [[nodiscard]] std::string place() const {
    return concat("tuning file ", file_, ", line ", number_);
  }

  [[nodiscard]] int number(std::size_t index, std::string_view column, int least, int most,
                           bool may_be_any) const {
    const std::string& word = words_[index];
    if (may_be_any && word == "*") return kAny;
    int value = 0;
    const char* end = word.data() + word.size();
    const auto [read, status] = std::from_chars(word.data(), end, value);
    check(status == std::errc{} && read == end && value >= least && value <= most, place(), ": ",
          column, " is ", word, "; allowed are ", least, " to ", most,
          may_be_any ? ", and * for any" : "");
    return value;
  }

  const std::string& file_;
  int number_;
  std::vector<std::string> words_;
};

}  // namespace

std::string complaint(const LaunchShape& shape) {
  const auto [blocks, tile_n, cluster] = shape;
  if (blocks < 1 || blocks > 8) {
    return concat("blocks is ", blocks, "; allowed are 1 to 8 thread blocks of an SM");
  }
  if (tile_n < 16 || tile_n > 65536 || tile_n % 16 != 0) {
    return concat("tile_n is ", tile_n, "; allowed are multiples of 16 up to 65536 keys");
  }
  if (cluster != 1 && cluster != 2 && cluster != 4 && cluster != 8) {
    return concat("cluster is ", cluster, "; allowed are 1, 2, 4 and 8 thread blocks");
  }
  return {};
}

bool TuningRow::serves(const LaunchKey& key) const {
  const auto up_to = [](auto value, int most) { return most == kAny || value <= most; };
  return (compute_capability == kAny || key.compute_capability == compute_capability) &&
         up_to(key.v_head_dim, most_v_head_dim) && up_to(key.row_tiles, most_row_tiles) &&
         up_to(key.kv_bytes / 1e6, most_megabytes);
}

const TuningRow* find_row(std::span<const TuningRow> rows, const LaunchKey& key) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const TuningRow& row) { return row.serves(key); });
  return found == rows.end() ? nullptr : &*found;
}

std::vector<TuningRow> parse_tuning(std::istream& text, const std::string& name) {
  std::vector<TuningRow> rows;
  std::string line;
  for (int number = 1; std::getline(text, line); ++number) {
    const Line words(name, number, line);
    if (!words.empty()) rows.push_back(words.row());
  }
  check(!rows.empty(), "tuning file ", name, " has no rows; at least one is needed: ", kColumns);
  return rows;
}

std::vector<TuningRow> read_tuning_file(const std::string& path) {
  std::ifstream stream(path);
  check(stream.is_open(), "tuning file ", path, " cannot be read");
  return parse_tuning(stream, path);
}

}  // namespace leanattn::cuda
