// Reading safetensors. See safetensors.h for the format and the promises.
#include "safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "leanattn/error.h"

namespace leanattn::tools {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "tensor bytes are used as they lie in the file");

constexpr int kMaxDepth = 3;  // header { tensor { shape [ … ] } }
constexpr std::int64_t kPrefixBytes = 8;

struct TypeRow {
  StoredType type;
  std::string_view name;
  std::int64_t size;
};
constexpr TypeRow kTypes[] = {
    {StoredType::kF32, "F32", 4}, {StoredType::kF16, "F16", 2}, {StoredType::kBF16, "BF16", 2},
    {StoredType::kI32, "I32", 4}, {StoredType::kI64, "I64", 8}, {StoredType::kBool, "BOOL", 1},
    {StoredType::kU8, "U8", 1},
};

// Names come from the file: shown short and printable.
std::string shown(std::string_view text) {
  constexpr std::size_t kMaxShown = 60;
  std::string result = "'";
  for (const char c : text.substr(0, kMaxShown)) result += (c >= ' ' && c <= '~') ? c : '?';
  return result + (text.size() > kMaxShown ? "…'" : "'");
}

// Parses JSON, refusing what the format forbids and a plain parser would let pass:
// a name given twice, and nesting that only an attacker would write.
Json parse_strictly(std::string_view header, const std::string& source) {
  std::vector<std::set<std::string>> keys(kMaxDepth + 1);
  const auto inspect = [&](int depth, Json::parse_event_t event, Json& parsed) {
    check(depth <= kMaxDepth, source, ": the header nests deeper than ", kMaxDepth, " levels");
    if (event == Json::parse_event_t::object_start) keys[depth].clear();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      check(keys[depth - 1].insert(key).second, source, ": the header names ", shown(key),
            " twice");
    }
    return true;
  };
  try {
    return Json::parse(header, inspect);
  } catch (const Json::exception& error) {
    const std::string_view what = error.what();
    throw InvalidArgument(concat(source, ": the header is not JSON (",
                                 what.substr(0, std::min<std::size_t>(what.size(), 160)), ")"));
  }
}

StoredType type_called(const Json& entry, const std::string& who) {
  const auto dtype = entry.find("dtype");
  check(dtype != entry.end() && dtype->is_string(), who, " has no 'dtype' text");
  const auto& name = dtype->get_ref<const std::string&>();
  for (const TypeRow& row : kTypes) {
    if (row.name == name) return row.type;
  }
  throw InvalidArgument(
      concat(who, " has dtype ", shown(name), "; read are F32, F16, BF16, I32, I64, BOOL and U8"));
}

std::int64_t count_of(const Json& number, const std::string& who, std::string_view what) {
  check(number.is_number_unsigned() && number.get<std::uint64_t>() <= std::uint64_t{1} << 62, who,
        " has a ", what, " that is not a whole number from 0 to 2^62");
  return static_cast<std::int64_t>(number.get<std::uint64_t>());
}

std::int64_t bytes_of(const StoredTensor& tensor, const std::string& who) {
  std::int64_t bytes = size_of(tensor.type);
  bool empty = false;
  for (const std::int64_t size : tensor.shape) {
    empty = empty || size == 0;
    // Sizes beside a 0 must fit too: strides are their products.
    check(!__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes), who,
          " has a shape whose bytes overflow 64 bits");
  }
  return empty ? 0 : bytes;
}

Metadata parse_metadata(const Json& entry, const std::string& source) {
  check(entry.is_object(), source, ": '__metadata__' is not an object of texts");
  Metadata metadata;
  for (const auto& [key, value] : entry.items()) {
    check(value.is_string(), source, ": '__metadata__' entry ", shown(key), " is not a text");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

std::uint64_t header_size(std::span<const std::byte> prefix, std::uint64_t file_bytes,
                          const std::string& source) {
  check(file_bytes >= kPrefixBytes, source, ": ", file_bytes,
        " bytes are too few for a safetensors file, which begins with an 8-byte header size");
  std::uint64_t size = 0;
  std::memcpy(&size, prefix.data(), sizeof(size));
  check(size <= kMaxHeaderBytes, source, ": the header claims ", size, " bytes; at most ",
        kMaxHeaderBytes, " are read (is it a safetensors file?)");
  check(size <= file_bytes - kPrefixBytes, source, ": the header claims ", size,
        " bytes, but only ", file_bytes - kPrefixBytes, " follow");
  return size;
}

}  // namespace

std::string_view name_of(StoredType type) { return kTypes[static_cast<std::size_t>(type)].name; }
std::int64_t size_of(StoredType type) { return kTypes[static_cast<std::size_t>(type)].size; }

std::string describe(const StoredTensor& tensor) {
  return fmt::format("{} [{}]", name_of(tensor.type), fmt::join(tensor.shape, ", "));
}

const StoredTensor* Safetensors::find(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const StoredTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

void Safetensors::parse_header(std::string_view header, std::int64_t data_bytes) {
  const Json json = parse_strictly(header, source_);
  check(json.is_object(), source_, ": the header is not a JSON object");
  struct Placed {
    StoredTensor tensor;
    std::int64_t begin;
  };
  std::vector<Placed> placed;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      metadata_ = parse_metadata(entry, source_);
      continue;
    }
    const std::string who = concat(source_, ": tensor ", shown(name));
    check(entry.is_object(), who, " is not described by an object");
    StoredTensor tensor{name, type_called(entry, who), {}, nullptr, 0};
    const auto shape = entry.find("shape");
    check(shape != entry.end() && shape->is_array(), who, " has no 'shape' array");
    for (const Json& size : *shape) tensor.shape.push_back(count_of(size, who, "size"));
    tensor.num_bytes = bytes_of(tensor, who);

    const auto offsets = entry.find("data_offsets");
    check(offsets != entry.end() && offsets->is_array() && offsets->size() == 2, who,
          " has no 'data_offsets' pair");
    const std::int64_t begin = count_of((*offsets)[0], who, "data offset");
    const std::int64_t end = count_of((*offsets)[1], who, "data offset");
    check(begin <= end && end <= data_bytes, who, " claims bytes ", begin, " to ", end,
          "; the file holds ", data_bytes);
    check(end - begin == tensor.num_bytes, who, " is ", describe(tensor), ", ", tensor.num_bytes,
          " bytes, but claims ", end - begin);
    placed.push_back({std::move(tensor), begin});
  }

  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.tensor.num_bytes) < std::pair(b.begin, b.tensor.num_bytes);
  });
  std::int64_t covered = 0;
  for (Placed& item : placed) {
    const std::string who = concat(source_, ": tensor ", shown(item.tensor.name));
    check(item.begin >= covered, who, " overlaps the tensor before it");
    check(item.begin == covered, who, " leaves bytes ", covered, " to ", item.begin,
          " to no tensor");
    covered += item.tensor.num_bytes;
    offsets_.push_back(item.begin);
    tensors_.push_back(std::move(item.tensor));
  }
  check(covered == data_bytes, source_, ": the last ", data_bytes - covered,
        " bytes belong to no tensor");
}

// Points every tensor to its bytes in `data`; those that the file misaligns are copied.
void Safetensors::place(const std::byte* data) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    StoredTensor& tensor = tensors_[i];
    tensor.data = data + offsets_[i];
    const auto address = reinterpret_cast<std::uintptr_t>(tensor.data);
    if (address % static_cast<std::uintptr_t>(size_of(tensor.type)) == 0) continue;
    auto copy = std::make_unique<std::byte[]>(static_cast<std::size_t>(tensor.num_bytes));
    std::memcpy(copy.get(), tensor.data, static_cast<std::size_t>(tensor.num_bytes));
    tensor.data = copy.get();
    storage_.push_back(std::move(copy));
  }
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, const std::string& source) {
  Safetensors file;
  file.source_ = source;
  const std::uint64_t header = header_size(bytes, bytes.size(), source);
  const auto data = bytes.subspan(kPrefixBytes + header);
  file.parse_header({reinterpret_cast<const char*>(bytes.data()) + kPrefixBytes, header},
                    static_cast<std::int64_t>(data.size()));
  file.storage_.push_back(std::make_unique<std::byte[]>(data.size()));
  if (!data.empty()) std::memcpy(file.storage_.back().get(), data.data(), data.size());
  file.place(file.storage_.back().get());
  return file;
}

Safetensors Safetensors::read(const std::string& path) {
  std::error_code error;
  check(!std::filesystem::is_directory(path, error), path, " is a directory, not a file");
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  check(stream.is_open(), path, " cannot be opened (", std::strerror(errno), ")");
  const std::streamoff size = stream.tellg();
  check(size >= 0, path, " has no size that can be read");
  stream.seekg(0);

  const auto read_exactly = [&](void* to, std::uint64_t count) {
    stream.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
    check(stream.gcount() == static_cast<std::streamsize>(count), path, " ends too early");
  };
  const auto file_bytes = static_cast<std::uint64_t>(size);
  std::byte prefix[kPrefixBytes] = {};
  read_exactly(prefix, std::min<std::uint64_t>(kPrefixBytes, file_bytes));
  std::string header(header_size(prefix, file_bytes, path), '\0');
  read_exactly(header.data(), header.size());

  Safetensors file;
  file.source_ = path;
  const std::uint64_t data_bytes = file_bytes - kPrefixBytes - header.size();
  file.parse_header(header, static_cast<std::int64_t>(data_bytes));
  file.storage_.push_back(std::unique_ptr<std::byte[]>(new std::byte[data_bytes]));
  read_exactly(file.storage_.back().get(), data_bytes);
  file.place(file.storage_.back().get());
  return file;
}

}  // namespace leanattn::tools
