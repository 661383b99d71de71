// Cases copied to a device and back.
#include "testing/device_case.h"

#include <vector>

namespace leanattn::testing {
namespace {

DeviceMirror::Block with_tail(const Buffer& buffer) {
  return {buffer.data(), buffer.size() + buffer.tail().size()};
}

std::vector<DeviceMirror::Block> blocks_of_case(const Case& problem) {
  std::vector<DeviceMirror::Block> blocks;
  for (const Buffer& input : problem.inputs) blocks.push_back(with_tail(input));
  blocks.push_back(with_tail(problem.out));
  blocks.push_back(with_tail(problem.lse));
  return blocks;
}

}  // namespace

DeviceCase::DeviceCase(const Case& problem, const Backend& backend)
    : problem_(problem),
      input_hash_(problem.input_hash()),
      mirror_(backend, blocks_of_case(problem)),
      arguments_(mirror_.mirrored(problem.arguments)) {}

void DeviceCase::reset_output() const {
  problem_.reset_output();
  mirror_.upload(problem_.out.data());
  mirror_.upload(problem_.lse.data());
}

void DeviceCase::fetch_output() const {
  mirror_.fetch(problem_.out.data());
  mirror_.fetch(problem_.lse.data());
}

bool DeviceCase::inputs_intact() const {
  for (const Buffer& input : problem_.inputs) {
    if (!mirror_.same(input.data())) return false;
  }
  return problem_.input_hash() == input_hash_;
}

Problem problem_on(const Backend& backend, const Case& problem) {
  Problem posed = problem_of(as_if_on(backend, problem.arguments), problem.rules());
  if (posed.has_bias) posed.max_kv_len = problem.spec.max_length();
  if (posed.has_bias || posed.has_tree_mask) posed.max_q_len = problem.spec.max_q_len();
  return posed;
}

void decode_case(const Case& problem, const PlanOptions& options) {
  const DeviceCase on_device(problem, backend(options.backend));
  decode(on_device.arguments(), problem.rules(), options);
  on_device.fetch_output();
}

}  // namespace leanattn::testing
