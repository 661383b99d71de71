// The safetensors reader and writer: what is written comes back; whatever else a
// file holds is one InvalidArgument that says what is wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "leanattn/error.h"
#include "safetensors.h"

namespace leanattn::tools {
namespace {

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("leanattn_" + std::to_string(::getpid()) + "_" + name)) {}
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  const std::uint64_t size = header.size();
  std::memcpy(file.data(), &size, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  for (std::size_t i = 0; i < data_bytes; ++i) file[8 + header.size() + i] = std::byte(i);
  return file;
}

std::string message_of(const std::vector<std::byte>& file) {
  try {
    (void)Safetensors::parse(file, "file");
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return {};
}

TEST(Safetensors, WritesAndReadsEveryType) {
  const TemporaryFile file("types.safetensors");
  const std::vector<std::int64_t> numbers{1, -2, 3, 4, 5, 6};
  std::vector<StoredTensor> tensors;
  for (const StoredType type :
       {StoredType::kBool, StoredType::kU8, StoredType::kF16, StoredType::kBF16, StoredType::kF32,
        StoredType::kI32, StoredType::kI64}) {
    tensors.push_back({std::string(name_of(type)),
                       type,
                       {3, 1, 2},
                       reinterpret_cast<const std::byte*>(numbers.data()),
                       6 * size_of(type)});
  }
  write_safetensors(file.path(), tensors, {{"made_by", "a \"test\""}});
  const Safetensors read = Safetensors::read(file.path());
  EXPECT_EQ(read.metadata(), (Metadata{{"made_by", "a \"test\""}}));
  ASSERT_EQ(read.tensors().size(), tensors.size());
  for (const StoredTensor& wanted : tensors) {
    const StoredTensor* got = read.find(wanted.name);
    ASSERT_NE(got, nullptr) << wanted.name;
    EXPECT_EQ(got->type, wanted.type);
    EXPECT_EQ(got->shape, wanted.shape);
    ASSERT_EQ(got->num_bytes, wanted.num_bytes);
    EXPECT_EQ(std::memcmp(got->data, wanted.data, static_cast<std::size_t>(got->num_bytes)), 0);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got->data) %
                  static_cast<std::uintptr_t>(size_of(got->type)),
              0u);
  }
  EXPECT_EQ(read.find("absent"), nullptr);
}

TEST(Safetensors, AlignsWhatTheFileMisaligns) {
  const auto file = file_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                            R"("b":{"dtype":"I64","shape":[1],"data_offsets":[1,9]}})",
                            9);
  const Safetensors read = Safetensors::parse(file, "file");
  const StoredTensor* b = read.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b->data) % 8, 0u);
  EXPECT_EQ(b->data[0], std::byte{1});
  EXPECT_EQ(b->data[7], std::byte{8});
}

TEST(Safetensors, ReadsScalarsEmptyTensorsAndPadding) {
  const auto file = file_of(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                            R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[4,4]}}   )",
                            4);
  const Safetensors read = Safetensors::parse(file, "file");
  EXPECT_EQ(read.find("s")->num_elements(), 1);
  EXPECT_EQ(read.find("e")->num_elements(), 0);
  EXPECT_TRUE(Safetensors::parse(file_of("{}", 0), "file").tensors().empty());
}

struct Malformed {
  const char* what;
  std::string header;
  std::size_t data_bytes;
  const char* message;
};

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, RefusesMalformedHeaders) {
  const std::string good = entry("F32", "[2]", "[0,8]");
  const Malformed rows[] = {
      {"no JSON", "{", 0, "not JSON"},
      {"bad UTF-8", "{\"\xff\":1}", 0, "not JSON"},
      {"not an object", "[1]", 0, "not a JSON object"},
      {"tensor not an object", R"({"a":7})", 0, "not described by an object"},
      {"duplicate name", R"({"a":)" + good + R"(,"a":)" + good + "}", 8, "names 'a' twice"},
      {"duplicate field", R"({"a":{"dtype":"F32","dtype":"F16"}})", 0, "names 'dtype' twice"},
      {"deep nesting", R"({"a":{"shape":[[[[1]]]]}})", 0, "nests deeper"},
      {"unknown type", R"({"a":)" + entry("F8_E4M3", "[2]", "[0,2]") + "}", 2, "has dtype"},
      {"no type", R"({"a":{"shape":[2],"data_offsets":[0,8]}})", 8, "no 'dtype'"},
      {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", 8, "no 'shape'"},
      {"no offsets", R"({"a":{"dtype":"F32","shape":[2]}})", 8, "no 'data_offsets'"},
      {"three offsets", R"({"a":)" + entry("F32", "[2]", "[0,8,8]") + "}", 8, "no 'data_offsets'"},
      {"negative size", R"({"a":)" + entry("F32", "[-2]", "[0,8]") + "}", 8, "whole number"},
      {"fractional size", R"({"a":)" + entry("F32", "[2.0]", "[0,8]") + "}", 8, "whole number"},
      {"huge size", R"({"a":)" + entry("F32", "[18446744073709551616]", "[0,8]") + "}", 8,
       "whole number"},
      {"overflowing shape", R"({"a":)" + entry("F32", "[4294967296,4294967296]", "[0,0]") + "}", 0,
       "overflow"},
      {"overflowing beside 0",
       R"({"a":)" + entry("F32", "[0,4294967296,4294967296]", "[0,0]") + "}", 0, "overflow"},
      {"out of range", R"({"a":)" + entry("F32", "[2]", "[0,8]") + "}", 7, "the file holds 7"},
      {"backwards", R"({"a":)" + entry("F32", "[2]", "[8,0]") + "}", 8, "claims bytes 8 to 0"},
      {"size mismatch", R"({"a":)" + entry("F32", "[3]", "[0,8]") + "}", 8, "12 bytes"},
      {"overlap", R"({"a":)" + good + R"(,"b":)" + entry("F32", "[2]", "[4,12]") + "}", 12,
       "overlaps"},
      {"hole", R"({"a":)" + entry("F32", "[2]", "[4,12]") + "}", 12, "to no tensor"},
      {"trailing bytes", R"({"a":)" + good + "}", 9, "belong to no tensor"},
      {"metadata not texts", R"({"__metadata__":{"a":1}})", 0, "is not a text"},
      {"metadata not an object", R"({"__metadata__":"a"})", 0, "not an object"},
  };
  for (const Malformed& row : rows) {
    const std::string message = message_of(file_of(row.header, row.data_bytes));
    EXPECT_NE(message.find(row.message), std::string::npos) << row.what << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << row.what;
  }
}

TEST(Safetensors, RefusesHeaderSizesThatCannotBe) {
  EXPECT_NE(message_of(std::vector<std::byte>(5)).find("too few"), std::string::npos);
  std::vector<std::byte> file = file_of("{}", 0);
  std::uint64_t size = 3;
  std::memcpy(file.data(), &size, 8);
  EXPECT_NE(message_of(file).find("only 2 follow"), std::string::npos);
  size = ~std::uint64_t{0};
  std::memcpy(file.data(), &size, 8);
  EXPECT_NE(message_of(file).find("at most 100000000"), std::string::npos);
}

TEST(Safetensors, NamesFilesThatCannotBeRead) {
  EXPECT_THROW((void)Safetensors::read("/nonexistent/file"), InvalidArgument);
  EXPECT_THROW((void)Safetensors::read(std::filesystem::temp_directory_path().string()),
               InvalidArgument);
}

TEST(Safetensors, WritesNothingWhenItFails) {
  const TemporaryFile file("kept.safetensors");
  const float value = 1;
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  write_safetensors(file.path(), {{"a", StoredType::kF32, {1}, bytes, 4}});
  const StoredTensor wrong{"a", StoredType::kF32, {2}, bytes, 4};
  EXPECT_THROW(write_safetensors(file.path(), {wrong}), InvalidArgument);
  const StoredTensor right{"a", StoredType::kF32, {1}, bytes, 4};
  EXPECT_THROW(write_safetensors(file.path(), {right, right}), InvalidArgument);
  EXPECT_THROW(write_safetensors("/nonexistent/folder/file", {right}), InvalidArgument);
  EXPECT_EQ(Safetensors::read(file.path()).tensors().size(), 1u);
}

}  // namespace
}  // namespace leanattn::tools
