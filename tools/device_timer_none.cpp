// device_timer.h in a build without CUDA.
#include "device_timer.h"
#include "leanattn/error.h"

namespace leanattn::tools {

std::unique_ptr<DeviceTimer> device_timer() {
  throw Unsupported("this build has no backend whose device keeps time; it needs CUDA");
}

}  // namespace leanattn::tools
