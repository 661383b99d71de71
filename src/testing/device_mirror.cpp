// Copies of host memory on a device, and views pointed at them.
#include "testing/device_mirror.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "leanattn/attention.h"
#include "leanattn/error.h"

namespace leanattn::testing {
namespace {

constexpr std::size_t kSpareBytes = 64;

/// Calls visit(view) for every tensor and index view of a call, given or not.
template <class Visit>
void for_each_view(Arguments& arguments, const Visit& visit) {
  const auto look = [&](auto&... views) { (visit(views), ...); };
  KvView& kv = arguments.kv;
  look(arguments.q, kv.k, kv.v, kv.page_table, kv.page_ids, kv.page_indptr, kv.cache_rows,
       arguments.lengths, arguments.q_offsets, arguments.sinks, arguments.alibi_slopes,
       arguments.bias, arguments.tree_mask, arguments.out, arguments.lse);
}

/// Bytes from the first to behind the last element. Strides are not negative.
template <int kRank, class Pointer>
std::int64_t bytes_of(const TensorView<kRank, Pointer>& view) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < kRank; ++d) {
    if (view.shape[d] == 0) return 0;
    last += (view.shape[d] - 1) * view.strides[d];
  }
  return (last + 1) * size_of(view.type);
}

std::int64_t bytes_of(const IndexView& view) {
  if (view.rows == 0 || view.columns == 0) return 0;
  return ((view.rows - 1) * view.row_stride + view.columns) * size_of(view.type);
}

Device device_of(const Backend& backend) { return {backend.device_kind(), 0}; }

}  // namespace

DeviceMemory::DeviceMemory(const Backend& backend, std::size_t size, const void* like)
    : backend_(&backend), size_(size) {
  const std::size_t offset = std::bit_cast<std::uintptr_t>(like) % kWorkspaceAlignment;
  allocation_ = backend.allocate(std::max<std::size_t>(offset + size, 1), {});
  data_ = allocation_ + offset;
}

DeviceMemory::~DeviceMemory() {
  if (allocation_ != nullptr) backend_->release(allocation_, {});
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(backend_, other.backend_);
  std::swap(allocation_, other.allocation_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void DeviceMemory::upload(const void* host) const {
  if (size_ > 0) backend_->copy(data_, host, size_, {});
}

void DeviceMemory::download(void* host) const {
  if (size_ > 0) backend_->copy(host, data_, size_, {});
}

DeviceMirror::DeviceMirror(const Backend& backend, std::vector<Block> blocks)
    : blocks_(std::move(blocks)) {
  if (backend.device_kind() == Device::Kind::kHost) return;
  for (const Block& block : blocks_) {
    memory_.emplace_back(backend, block.size(), block.data()).upload(block.data());
  }
  memory_.emplace_back(backend, kSpareBytes);
}

std::byte* DeviceMirror::at(const void* host) const {
  const auto* const byte = static_cast<const std::byte*>(host);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::byte* const begin = blocks_[i].data();
    if (byte >= begin && byte <= begin + blocks_[i].size()) {
      return memory_[i].bytes().data() + (byte - begin);
    }
  }
  return nullptr;
}

template <class View>
void DeviceMirror::move(View& view) const {
  std::byte* moved = at(view.data);
  if (moved == nullptr) {
    check(bytes_of(view) == 0, "a view points to memory that is not mirrored");
    moved = memory_.back().bytes().data();
  }
  view.data = moved;
}

Arguments DeviceMirror::mirrored(const Arguments& host) const {
  if (!on_device()) return host;
  Arguments arguments = host;
  for_each_view(arguments, [&](auto& view) {
    if (view.given()) move(view);
    view.device = {Device::Kind::kDevice, 0};
  });
  return arguments;
}

const DeviceMemory* DeviceMirror::copy_of(const void* begin) const {
  if (!on_device()) return nullptr;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].data() == begin) return &memory_[i];
  }
  return nullptr;
}

void DeviceMirror::upload(const void* begin) const {
  if (const DeviceMemory* copy = copy_of(begin)) copy->upload(begin);
}

void DeviceMirror::fetch(void* begin) const {
  if (const DeviceMemory* copy = copy_of(begin)) copy->download(begin);
}

bool DeviceMirror::same(const void* begin) const {
  const DeviceMemory* copy = copy_of(begin);
  if (copy == nullptr || copy->bytes().empty()) return true;
  std::vector<std::byte> bytes(copy->bytes().size());
  copy->download(bytes.data());
  return std::memcmp(bytes.data(), begin, bytes.size()) == 0;
}

Arguments as_if_on(const Backend& backend, const Arguments& host) {
  Arguments arguments = host;
  for_each_view(arguments, [&](auto& view) { view.device = device_of(backend); });
  return arguments;
}

std::vector<DeviceMirror::Block> blocks_of(const Arguments& arguments) {
  std::vector<DeviceMirror::Block> blocks;
  Arguments views = arguments;
  for_each_view(views, [&](auto& view) {
    if (!view.given()) return;
    blocks.emplace_back(static_cast<const std::byte*>(view.data),
                        static_cast<std::size_t>(bytes_of(view)));
  });
  return blocks;
}

std::vector<const Backend*> backends_here() {
  std::vector<const Backend*> here;
  for (const Backend* each : backends()) {
    if (each->unavailable().empty()) here.push_back(each);
  }
  return here;
}

}  // namespace leanattn::testing
