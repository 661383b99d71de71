// Times of work that is queued on a device, as its backend's runtime measures them. In a
// build with CUDA device_timer_cuda.cpp is linked, in others device_timer_none.cpp.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "leanattn/stream.h"

namespace leanattn::tools {

/// Records work once and replays it, timed.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;

  /// 10·major + minor of the device.
  [[nodiscard]] virtual int compute_capability() const = 0;
  /// The stream in which everything happens.
  [[nodiscard]] virtual Stream stream() const = 0;
  /// Records what `work` queues in the stream, without doing it; returns its index.
  virtual std::size_t record(const std::function<void()>& work) = 0;
  /// Seconds that the device takes for one replay of a recording.
  [[nodiscard]] virtual double replay(std::size_t index) = 0;
  /// Drops all recordings.
  virtual void forget() = 0;
};

/// A timer of the current device. Throws Unsupported where the build has none.
[[nodiscard]] std::unique_ptr<DeviceTimer> device_timer();

}  // namespace leanattn::tools
