// Where a call on an accelerator is queued, and how early it may start.
#pragma once

#include <cstdint>

namespace leanattn {

/// How early a call may start, beside the work ahead of it in its stream.
enum class Overlap : std::uint8_t {
  kNone,   // once that work has ended
  kStart,  // as soon as the machine has room; waits for that work before it reads or writes
           // anything of the caller's
  kCache,  // as kStart, but reads keys, values, lengths and tables at once: the caller promises
           // that the work ahead writes none of them. Queries, biases and masks are waited for
};

/// A queue of an accelerator. Host backends take the default only.
struct Stream {
  void* handle = nullptr;  // the runtime's own, e.g. a cudaStream_t; nullptr: its default stream
  Overlap overlap = Overlap::kNone;

  friend bool operator==(const Stream&, const Stream&) = default;
};

}  // namespace leanattn
