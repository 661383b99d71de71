// Writing safetensors. See safetensors.h for the format and the promises.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "leanattn/error.h"
#include "safetensors.h"

namespace leanattn::tools {
namespace {

// Wide elements first, so that each tensor lies aligned to its element size.
std::vector<const StoredTensor*> in_file_order(const std::vector<StoredTensor>& tensors) {
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return size_of(a->type) > size_of(b->type);
  });
  return order;
}

std::string header_of(const std::vector<const StoredTensor*>& order, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::int64_t offset = 0;
  for (const StoredTensor* tensor : order) {
    std::int64_t bytes = size_of(tensor->type);
    for (const std::int64_t size : tensor->shape) bytes *= size;
    check(bytes == tensor->num_bytes, "tensor '", tensor->name, "' is ", describe(*tensor), ", ",
          bytes, " bytes, but ", tensor->num_bytes, " are given");
    check(tensor->name != "__metadata__" && !header.contains(tensor->name), "the tensor name '",
          tensor->name, "' is taken");
    header[tensor->name] = {{"dtype", name_of(tensor->type)},
                            {"shape", tensor->shape},
                            {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the bytes that follow stay 8-byte aligned
  return text;
}

}  // namespace

void write_safetensors(const std::string& path, const std::vector<StoredTensor>& tensors,
                       const Metadata& metadata) {
  const auto order = in_file_order(tensors);
  const std::string header = header_of(order, metadata);
  const std::uint64_t header_bytes = header.size();

  const std::string unfinished = fmt::format("{}.{}.unfinished", path, ::getpid());
  std::ofstream stream(unfinished, std::ios::binary | std::ios::trunc);
  check(stream.is_open(), path, " cannot be written (", std::strerror(errno), ")");
  stream.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  stream.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const StoredTensor* tensor : order) {
    stream.write(reinterpret_cast<const char*>(tensor->data), tensor->num_bytes);
  }
  stream.close();
  if (stream.fail() || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw InvalidArgument(concat(path, " cannot be written (", reason, ")"));
  }
}

}  // namespace leanattn::tools
