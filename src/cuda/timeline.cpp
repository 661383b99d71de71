#include "cuda/timeline.h"

#include "leanattn/error.h"

namespace leanattn::cuda {
namespace {

struct Timeline {
  std::int64_t* memory = nullptr;
  std::int64_t num_blocks = 0;
};
Timeline timeline;

}  // namespace

void set_timeline(std::int64_t* device_memory, std::int64_t num_blocks) {
  timeline = {device_memory, num_blocks};
}

std::int64_t* timeline_for(std::int64_t num_blocks) {
  if (timeline.memory == nullptr) return nullptr;
  check(num_blocks <= timeline.num_blocks, "the timeline has room for ", timeline.num_blocks,
        " thread blocks; the call has ", num_blocks);
  return timeline.memory;
}

}  // namespace leanattn::cuda
