// What is refused, with a sentence that names the argument and its value, and writes
// nothing: on the host before a launch, and in checked mode what lies on the device.
#include <algorithm>

#include "device_call.h"

namespace leanattn::testing {
namespace {

class Errors : public CudaTest {};

// Checks that `call` throws a `Kind` whose sentence has all of `parts`.
template <class Kind, class Call>
void expect_refused(const Call& call, const std::vector<std::string>& parts) {
  try {
    call();
    ADD_FAILURE() << "no error, which should have named " << parts.front();
  } catch (const Kind& error) {
    const std::string sentence = error.what();
    for (const std::string& part : parts) {
      EXPECT_NE(sentence.find(part), std::string::npos) << sentence << "\n  lacks " << part;
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another kind of error: " << error.what();
  }
}

void expect_unwritten(const DeviceCall& call, const CudaStream& stream) {
  const std::vector<std::byte> bytes = call.results(stream);
  EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0xff}; }))
      << "something was written";
}

Plan cuda_plan(const Problem& problem, bool checked = false) {
  PlanOptions options;
  options.backend = "cuda";
  options.checked = checked;
  return plan(problem, options);
}

TEST_F(Errors, HostTensorsGivenToTheDevice) {
  const DeviceCall call({}, {1000});
  Problem on_host = problem_of(call.arguments());
  on_host.device = {};
  expect_refused<Unsupported>([&] { (void)cuda_plan(on_host); }, {"host memory", "cuda"});

  const CudaStream stream;
  const Plan made = cuda_plan(problem_of(call.arguments()));
  const Workspace workspace(made, stream);
  const auto refuses = [&](const std::string& name, const auto& change) {
    Arguments changed = call.arguments();
    change(changed);
    call.poison(stream);
    expect_refused<TypeMismatch>([&] { run(made, changed, workspace.bytes(), stream.view()); },
                                 {name, "host memory", "device 0"});
    expect_unwritten(call, stream);
  };
  refuses("q", [](Arguments& a) { a.q.device = {}; });
  refuses("k", [](Arguments& a) { a.kv.k.device = {}; });
  refuses("v", [](Arguments& a) { a.kv.v.device = {}; });
  refuses("out", [](Arguments& a) { a.out.device = {}; });
  refuses("lse", [](Arguments& a) { a.lse.device = {}; });
  refuses("lengths", [](Arguments& a) { a.lengths.device = {}; });
}

TEST_F(Errors, DeviceTensorsGivenToTheHost) {
  const DeviceCall call({}, {1000});
  PlanOptions options;
  options.backend = "cpu";
  expect_refused<Unsupported>([&] { (void)plan(problem_of(call.arguments()), options); },
                              {"cpu", "host memory", "device memory"});
}

TEST_F(Errors, TypesAndHeadDimsWithoutAKernel) {
  const DeviceCall call({}, {1000});
  const Problem good = problem_of(call.arguments());
  Problem wide = good;
  wide.q_type = wide.k_type = wide.v_type = wide.out_type = ElementType::kFloat32;
  expect_refused<Unsupported>([&] { (void)cuda_plan(wide); }, {"f32", "bf16"});
  Problem mixed = good;
  mixed.v_type = ElementType::kFloat16;
  expect_refused<Unsupported>([&] { (void)cuda_plan(mixed); }, {"bf16", "f16"});
  Problem odd = good;
  odd.head_dim = odd.v_head_dim = 72;
  expect_refused<Unsupported>([&] { (void)cuda_plan(odd); }, {"head_dim", "72", "128"});
}

TEST_F(Errors, ThreadsAndStreamsThatWouldBeIgnored) {
  const DeviceCall call({}, {1000});
  PlanOptions options;
  options.backend = "cuda";
  options.num_threads = 2;
  expect_refused<InvalidArgument>([&] { (void)plan(problem_of(call.arguments()), options); },
                                  {"num_threads", "2"});
}

TEST_F(Errors, AWorkspaceOneByteShortOrMisaligned) {
  const DeviceCall call({}, {1000});
  const CudaStream stream;
  for (PlanOptions options : cuda_plans()) {
    const Plan made = plan(problem_of(call.arguments()), options);
    if (made.workspace_bytes == 0) continue;
    const DeviceArray memory(made.workspace_bytes + kWorkspaceAlignment);
    call.poison(stream);
    const std::string needed = std::to_string(made.workspace_bytes);
    const auto short_by_one = memory.bytes().first(made.workspace_bytes - 1);
    expect_refused<InvalidArgument>([&] { initialise(made, short_by_one, stream.view()); },
                                    {"workspace", needed});
    expect_refused<InvalidArgument>(
        [&] { run(made, call.arguments(), short_by_one, stream.view()); }, {"workspace", needed});
    expect_refused<InvalidArgument>(
        [&] { run(made, call.arguments(), memory.bytes().subspan(1), stream.view()); },
        {"workspace", "64"});
    expect_unwritten(call, stream);
  }
}

TEST_F(Errors, CheckedLengthsAboveTheCapacity) {
  const CudaStream stream;
  CallShape shape;
  for (const std::int64_t page_size : {0, 16}) {
    shape.page_size = page_size;
    const DeviceCall call(shape, {1000, 1024, 5});
    const Plan made = cuda_plan(problem_of(call.arguments()), true);
    const Workspace workspace(made, stream);
    const std::vector<std::byte> right = call.run_once(made, workspace, stream);
    for (const std::int32_t wrong : {1025, -1, 2'000'000'000}) {
      call.set_lengths({1000, wrong, 5}, stream);
      call.poison(stream);
      expect_refused<InvalidArgument>(
          [&] { run(made, call.arguments(), workspace.bytes(), stream.view()); },
          {"lengths[1]", std::to_string(wrong), "1024"});
      expect_unwritten(call, stream);
    }
    // The workspace is as it was: the next call is right.
    call.set_lengths({1000, 1024, 5}, stream);
    EXPECT_EQ(call.run_once(made, workspace, stream), right);
  }
}

TEST_F(Errors, CheckedPagesOutsideTheCache) {
  const CudaStream stream;
  CallShape shape;
  shape.page_size = 16;
  const DeviceCall call(shape, {1000, 500});
  const std::int64_t num_pages = call.arguments().kv.k.shape[0];
  const Plan made = cuda_plan(problem_of(call.arguments()), true);
  const Workspace workspace(made, stream);
  const std::vector<std::byte> right = call.run_once(made, workspace, stream);
  const IndexView& table = call.arguments().kv.page_table;
  auto* entries = static_cast<std::int32_t*>(const_cast<void*>(table.data));
  const auto set_entry = [&](std::int64_t column, std::int32_t id) {
    std::int32_t before = 0;
    std::int32_t* entry = entries + table.row_stride + column;  // of sequence 1
    check_cuda(cudaMemcpy(&before, entry, sizeof(before), cudaMemcpyDeviceToHost));
    check_cuda(cudaMemcpy(entry, &id, sizeof(id), cudaMemcpyHostToDevice));
    check_cuda(cudaDeviceSynchronize());
    return before;
  };
  constexpr std::int64_t kLastSeen = (500 - 1) / 16;
  for (const std::int64_t wrong : {num_pages, std::int64_t{-1}}) {
    const std::int32_t before = set_entry(kLastSeen, static_cast<std::int32_t>(wrong));
    call.poison(stream);
    expect_refused<InvalidArgument>(
        [&] { run(made, call.arguments(), workspace.bytes(), stream.view()); },
        {"sequence 1", "page_table", std::to_string(wrong)});
    expect_unwritten(call, stream);
    set_entry(kLastSeen, before);
  }
  // Of a page that no key lies in nothing is said.
  set_entry(kLastSeen + 1, -1);
  EXPECT_EQ(call.run_once(made, workspace, stream), right);
}

}  // namespace
}  // namespace leanattn::testing
