// The safetensors file format: a JSON header that names tensors, then their bytes.
//
//   u64 little-endian header size | header, one JSON object | tensor bytes
//
// Reading trusts nothing: whatever a file holds, it is either understood whole or
// refused with one InvalidArgument that names the file, the tensor and the fault.
// Writing goes to a temporary file beside the target and renames it at the end, so
// a reader never sees half a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace leanattn::tools {

enum class StoredType : std::uint8_t { kF32, kF16, kBF16, kI32, kI64, kBool, kU8 };

/// "F32", "F16", "BF16", "I32", "I64", "BOOL" or "U8", as in a header.
[[nodiscard]] std::string_view name_of(StoredType type);
/// Bytes of one element.
[[nodiscard]] std::int64_t size_of(StoredType type);

/// A row-major tensor in somebody else's memory.
struct StoredTensor {
  std::string name;
  StoredType type = StoredType::kF32;
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  // aligned to the element size when read by this header
  std::int64_t num_bytes = 0;

  [[nodiscard]] std::int64_t num_elements() const { return num_bytes / size_of(type); }
};

/// "F16 [1, 640, 3, 64]"
[[nodiscard]] std::string describe(const StoredTensor& tensor);

/// Free text that a file carries under "__metadata__".
using Metadata = std::map<std::string, std::string>;

/// The longest header that is read, in bytes.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// A file in memory. Movable; tensors stay where they are.
class Safetensors {
 public:
  /// Reads `path` whole. Throws InvalidArgument if it cannot be read or is not a
  /// well-formed safetensors file of the types above.
  [[nodiscard]] static Safetensors read(const std::string& path);

  /// Takes `bytes` for a file called `source` in messages. Copies what it keeps.
  [[nodiscard]] static Safetensors parse(std::span<const std::byte> bytes,
                                         const std::string& source);

  /// In the order of their bytes.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const { return tensors_; }
  [[nodiscard]] const Metadata& metadata() const { return metadata_; }
  [[nodiscard]] const std::string& source() const { return source_; }

  /// The tensor called `name`, or null.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;

 private:
  void parse_header(std::string_view header, std::int64_t data_bytes);
  void place(const std::byte* data);

  std::string source_;
  Metadata metadata_;
  std::vector<StoredTensor> tensors_;
  std::vector<std::int64_t> offsets_;  // of tensors_, in the data section
  std::vector<std::unique_ptr<std::byte[]>> storage_;
};

/// Writes `tensors` and `metadata` to `path`. Throws InvalidArgument for a name
/// given twice, a size that does not fit its shape, or a file that cannot be written;
/// then `path` is as it was.
void write_safetensors(const std::string& path, const std::vector<StoredTensor>& tensors,
                       const Metadata& metadata = {});

}  // namespace leanattn::tools
