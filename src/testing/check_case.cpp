// Guarded runs of a case.
#include "testing/check_case.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "testing/random_bits.h"

namespace leanattn::testing {
namespace {

constexpr std::size_t kWorkspaceTail = 256;  // bytes of canary

// A workspace of exactly `size` bytes in a backend's memory, with a canary behind it, all
// 0xFF to begin with; on a host aligned, and a guard page behind the canary.
class Workspace {
 public:
  Workspace(const Backend& backend, std::size_t size)
      : size_(size),
        buffer_(size + (kWorkspaceAlignment - size % kWorkspaceAlignment) % kWorkspaceAlignment,
                kWorkspaceTail) {
    if (backend.device_kind() == Device::Kind::kHost) return;
    memory_.emplace(backend, size + kWorkspaceTail);
    memory_->upload(buffer_.data());
  }

  [[nodiscard]] std::span<std::byte> bytes() const {
    if (memory_) return memory_->bytes().first(size_);
    return {buffer_.data(), size_};
  }
  [[nodiscard]] bool canary_intact() const {
    if (memory_) memory_->download(buffer_.data());
    const auto rest = std::span<const std::byte>(buffer_.bytes()).subspan(size_);
    return is_canary(rest) && buffer_.tail_intact();
  }

 private:
  static bool is_canary(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0xff}; });
  }

  std::size_t size_;
  Buffer buffer_;  // on the host; of a device's, a copy
  std::optional<DeviceMemory> memory_;
};

// Whether every byte of `buffer` that is no element of `view` is still 0xFF.
template <int kRank>
bool gaps_intact(const Buffer& buffer, const MutableTensorView<kRank>& view) {
  std::vector<bool> element(buffer.size(), false);
  std::int64_t count = 1;
  for (const std::int64_t size : view.shape) count *= size;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t d = kRank; d-- > 0;) {
      offset += rest % view.shape[d] * view.strides[d];
      rest /= view.shape[d];
    }
    const std::int64_t size = size_of(view.type);
    for (std::int64_t byte = 0; byte < size; ++byte) {
      element[static_cast<std::size_t>(offset * size + byte)] = true;
    }
  }
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (!element[i] && buffer.data()[i] != std::byte{0xff}) return false;
  }
  return buffer.tail_intact();
}

// What is wrong with the memory around the answer that stands in the case, or nothing.
std::string wrong_around(const Case& problem, const DeviceCase& on_device,
                         const Workspace& workspace) {
  if (!on_device.inputs_intact()) return "an input was written to";
  if (!workspace.canary_intact()) return "the canary behind the workspace was overwritten";
  const Arguments& arguments = problem.arguments;
  if (!gaps_intact(problem.out, arguments.out)) return "memory between or behind out was written";
  if (arguments.lse.given() && !gaps_intact(problem.lse, arguments.lse)) {
    return "memory between or behind lse was written";
  }
  return {};
}

}  // namespace

std::vector<std::byte> output_bytes(const Case& problem) {
  const auto out = problem.out.bytes();
  const auto lse = problem.lse.bytes();
  std::vector<std::byte> bytes(out.begin(), out.end());
  bytes.insert(bytes.end(), lse.begin(), lse.end());
  return bytes;
}

std::string run_guarded(const Case& problem, const Plan& plan) {
  const DeviceCase on_device(problem, *plan.backend);
  const Workspace workspace(*plan.backend, plan.workspace_bytes);
  const auto run_by = [&](auto runs) {
    on_device.reset_output();
    runs(plan, on_device.arguments(), workspace.bytes(), Stream{});
    on_device.fetch_output();
  };
  run_by(run_fresh);
  if (plan.backend->device_kind() == Device::Kind::kDevice) {
    const std::string wrong = wrong_around(problem, on_device, workspace);
    if (!wrong.empty()) return wrong;
    // The workspace must have been left as a run needs it.
    const std::vector<std::byte> first = output_bytes(problem);
    run_by(run);
    if (output_bytes(problem) != first) return "a second run gave other bits";
  }
  return wrong_around(problem, on_device, workspace);
}

Outcome check_case(const Case& problem, const Expected& expected, const PlanOptions& options) {
  Outcome outcome;
  try {
    const Plan planned = plan(problem_on(backend(options.backend), problem), options);
    outcome.plan = explain(planned);
    outcome.message = run_guarded(problem, planned);
  } catch (const Unsupported& error) {
    outcome.refused = true;
    outcome.message = error.what();
    return outcome;
  } catch (const std::exception& error) {
    outcome.passed = false;
    outcome.message = concat("threw: ", error.what());
    return outcome;
  }
  outcome.comparison = compare(problem, expected, read_output(problem));
  if (outcome.message.empty() && !outcome.comparison.passed) {
    outcome.message = outcome.comparison.worst;
  }
  outcome.passed = outcome.message.empty();
  return outcome;
}

Outcome check_case(const Case& problem, const PlanOptions& options) {
  return check_case(problem, expect(problem), options);
}

PlanOptions draw_options(std::uint64_t seed, const Backend& backend) {
  RandomBits bits(~seed);
  PlanOptions options;
  options.backend = backend.name();
  options.partition =
      bits.pick({PartitionChoice::kAuto, PartitionChoice::kOneTile, PartitionChoice::kFixedSplit,
                 PartitionChoice::kStreamK, PartitionChoice::kStreamK});
  if (options.partition == PartitionChoice::kFixedSplit) {
    options.num_splits = bits.pick<std::int64_t>({0, 1, 2, 3, 7, 64});
  }
  if (options.partition == PartitionChoice::kStreamK) {
    options.num_workers = bits.pick<std::int64_t>({0, 1, 2, 7, 76, 92, 132, 333});
  }
  const std::int64_t threads = bits.pick<std::int64_t>({0, 1, 2, 3});
  if (backend.device_kind() == Device::Kind::kHost) options.num_threads = threads;
  options.batch_invariant = bits.chance(0.25);
  return options;
}

std::string describe(const PlanOptions& options) {
  std::string text = concat(options.backend, ", ", name_of(options.partition));
  if (options.num_splits > 0) text += concat(", ", options.num_splits, " splits");
  if (options.num_workers > 0) text += concat(", ", options.num_workers, " workers");
  if (options.num_threads > 0) text += concat(", ", options.num_threads, " threads");
  if (options.batch_invariant) text += ", batch_invariant";
  return text;
}

}  // namespace leanattn::testing
