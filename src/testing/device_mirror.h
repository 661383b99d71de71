// A call's memory on a backend's device: blocks of host memory, each copied to an
// allocation of its own, and the call's views pointed there. Of a host backend the
// mirror is the memory itself.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "leanattn/backend.h"
#include "leanattn/problem.h"

namespace leanattn::testing {

/// Memory that a backend allocated. Movable.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Ends `size` bytes after an address with the same last 6 bits as `like`, and there
  /// ends the allocation too, so that a sanitizer sees an access behind it. Null: aligned.
  DeviceMemory(const Backend& backend, std::size_t size, const void* like = nullptr);
  ~DeviceMemory();
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }
  /// Copies all of it; `host` has its size.
  void upload(const void* host) const;
  void download(void* host) const;

 private:
  const Backend* backend_ = nullptr;
  std::byte* allocation_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class DeviceMirror {
 public:
  using Block = std::span<const std::byte>;

  /// Copies `blocks`, which stay where they are as long as this lives.
  DeviceMirror(const Backend& backend, std::vector<Block> blocks);

  /// `host`, whose views point into the blocks, on the device. A view of no element may
  /// point anywhere.
  [[nodiscard]] Arguments mirrored(const Arguments& host) const;

  // Of the block that begins at `begin`; nothing to do where there is none.
  /// Copies it to the device again.
  void upload(const void* begin) const;
  /// Copies it back to the host.
  void fetch(void* begin) const;
  /// Whether it is on the device what it is on the host.
  [[nodiscard]] bool same(const void* begin) const;

 private:
  [[nodiscard]] bool on_device() const { return !memory_.empty(); }
  [[nodiscard]] const DeviceMemory* copy_of(const void* begin) const;
  [[nodiscard]] std::byte* at(const void* host) const;
  template <class View>
  void move(View& view) const;

  std::vector<Block> blocks_;
  std::vector<DeviceMemory> memory_;  // of each block, and of 64 bytes for views of nothing
};

/// `host` with every view said to lie in memory of `backend`. Points where it pointed:
/// enough to make a Problem of.
[[nodiscard]] Arguments as_if_on(const Backend& backend, const Arguments& host);

/// Copies what the views of `arguments` reach, a block for each view that is given.
/// Views must not overlap.
[[nodiscard]] std::vector<DeviceMirror::Block> blocks_of(const Arguments& arguments);

/// The backends of this build that this machine can run.
[[nodiscard]] std::vector<const Backend*> backends_here();

}  // namespace leanattn::testing
