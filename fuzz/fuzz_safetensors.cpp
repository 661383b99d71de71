// Any bytes as a safetensors file: understood whole, or refused with one sentence.
// What is understood must be readable, and the same again after writing.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>

#include "leanattn/error.h"
#include "safetensors.h"

namespace {

using leanattn::tools::Safetensors;
using leanattn::tools::StoredTensor;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  __builtin_trap();
}

// Touches every byte, so that a sanitizer sees a tensor that leaves its memory.
std::uint64_t checksum(const StoredTensor& tensor) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < tensor.num_bytes; ++i) {
    sum = sum * 31 + static_cast<std::uint64_t>(tensor.data[i]);
  }
  return sum;
}

void check_tensors(const Safetensors& file) {
  for (const StoredTensor& tensor : file.tensors()) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) {
      require(extent >= 0, "an extent is negative");
      elements *= extent;
    }
    require(elements == tensor.num_elements(), "a tensor's bytes do not fit its shape");
    require(file.find(tensor.name) != nullptr, "a tensor cannot be found by its name");
    require(!describe(tensor).empty(), "a tensor has no description");
    checksum(tensor);
  }
}

// Written and read again, nothing may have changed.
void check_round_trip(const Safetensors& file) {
  static const std::string path =
      std::filesystem::temp_directory_path() / leanattn::concat("leanattn_fuzz.", getpid());
  write_safetensors(path, file.tensors(), file.metadata());
  const Safetensors again = Safetensors::read(path);
  std::remove(path.c_str());
  require(again.metadata() == file.metadata(), "the metadata changed");
  require(again.tensors().size() == file.tensors().size(), "the number of tensors changed");
  for (const StoredTensor& tensor : file.tensors()) {
    const StoredTensor* same = again.find(tensor.name);
    require(same != nullptr && same->type == tensor.type && same->shape == tensor.shape &&
                checksum(*same) == checksum(tensor),
            "a tensor changed");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const Safetensors file =
        Safetensors::parse(std::as_bytes(std::span<const std::uint8_t>(data, size)), "the input");
    check_tensors(file);
    check_round_trip(file);
  } catch (const leanattn::Error& error) {
    require(std::strlen(error.what()) > 0, "an error without a sentence");
  }
  return 0;
}
