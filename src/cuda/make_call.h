// A call as its kernel reads it, made from the plan and the arguments.
#pragma once

#include <span>

#include "cuda/call.h"
#include "leanattn/attention.h"

namespace leanattn::cuda {

[[nodiscard]] Call make_call(const Plan& plan, const Arguments& arguments,
                             std::span<std::byte> workspace, const Stream& stream);

}  // namespace leanattn::cuda
