// See tune_measure.h.
#include "tune_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <random>

#include "bench_measure.h"
#include "leanattn/error.h"
#include "leanattn/half.h"

namespace leanattn::tools {
namespace {

constexpr const char* kShapeVariable = "LEANATTN_CUDA_SHAPE";
constexpr std::int64_t kKvHeads = 8;
constexpr std::int64_t kMostKeys = 16384;  // of a sequence; more keys are more sequences
constexpr Device kDevice{Device::Kind::kDevice, 0};

/// Memory of the device that a case needs besides caches.
class DeviceMemory {
 public:
  DeviceMemory(const Backend& backend, std::size_t bytes, const Stream& stream)
      : backend_(backend), stream_(stream), size_(bytes), data_(backend.allocate(bytes, stream)) {}
  ~DeviceMemory() { backend_.release(data_, stream_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  const Backend& backend_;
  Stream stream_;
  std::size_t size_;
  std::byte* data_;
};

/// The sizes of a case.
struct Extents {
  std::int64_t batch = 1;
  std::int64_t keys = 1;  // of every sequence
  std::int64_t q_heads = 1;
  std::int64_t k_bytes = 0;  // of all keys
  std::int64_t v_bytes = 0;

  explicit Extents(const TuneCase& problem) {
    const std::int64_t element = size_of(problem.type);
    const std::int64_t key_bytes = kKvHeads * (problem.head_dim + problem.v_head_dim) * element;
    const std::int64_t all = std::max<std::int64_t>(1, problem.megabytes * 1'000'000 / key_bytes);
    batch = ceil_div(all, kMostKeys);
    keys = all / batch;
    q_heads = kKvHeads * 8 * problem.row_tiles;
    k_bytes = batch * keys * kKvHeads * problem.head_dim * element;
    v_bytes = batch * keys * kKvHeads * problem.v_head_dim * element;
  }
  [[nodiscard]] std::int64_t bytes() const { return k_bytes + v_bytes; }
  /// Caches to rotate over, so that none is found in the device's own cache.
  [[nodiscard]] std::int64_t copies() const {
    constexpr std::int64_t kColdBytes = 400'000'000;
    return std::clamp<std::int64_t>(ceil_div(kColdBytes, bytes()), 3, 64);
  }
};

Problem problem_of(const TuneCase& tuned) {
  const Extents extents(tuned);
  Problem problem;
  problem.batch = problem.num_queries = extents.batch;
  problem.num_q_heads = extents.q_heads;
  problem.num_kv_heads = kKvHeads;
  problem.head_dim = tuned.head_dim;
  problem.v_head_dim = tuned.v_head_dim;
  problem.max_kv_len = extents.keys;
  problem.q_type = problem.k_type = problem.v_type = problem.out_type = tuned.type;
  problem.device = kDevice;
  return problem;
}

/// Random values of `type` from [−1, 1), of a period that fits no power of two.
std::vector<std::byte> random_values(ElementType type) {
  constexpr std::size_t kCount = 8'000'009;
  std::vector<std::byte> values(kCount * static_cast<std::size_t>(size_of(type)));
  std::mt19937 bits(1);
  for (std::size_t i = 0; i < kCount; ++i) {
    store_float(values.data(), type, static_cast<std::int64_t>(i),
                static_cast<float>(bits()) * 0x1p-31f - 1.0f);
  }
  return values;
}

std::string text_of(const LaunchShape& shape) {
  return fmt::format("{},{},{}", shape.blocks, shape.tile_n, shape.cluster);
}

template <class Pointer>
TensorView<4, Pointer> device_view(Pointer data, ElementType type,
                                   const std::array<std::int64_t, 4>& shape) {
  TensorView<4, Pointer> view = contiguous<4, Pointer>(data, type, shape);
  view.device = kDevice;
  return view;
}

/// The calls of a case: each reads a cache of its own; queries and output are shared.
class CaseCalls {
 public:
  CaseCalls(const Backend& backend, const Stream& stream, const TuneCase& tuned,
            const std::byte* caches)
      : extents_(tuned),
        q_(backend, row_bytes(tuned) * static_cast<std::size_t>(tuned.head_dim), stream),
        out_(backend, row_bytes(tuned) * static_cast<std::size_t>(tuned.v_head_dim), stream),
        lengths_(backend, static_cast<std::size_t>(extents_.batch) * sizeof(std::int32_t), stream) {
    const std::vector<std::int32_t> lengths(static_cast<std::size_t>(extents_.batch),
                                            static_cast<std::int32_t>(extents_.keys));
    backend.copy(lengths_.data(), lengths.data(), lengths_.bytes().size(), stream);
    std::vector<std::byte> q = random_values(tuned.type);
    q.resize(q_.bytes().size());
    backend.copy(q_.data(), q.data(), q.size(), stream);
    for (std::int64_t copy = 0; copy < extents_.copies(); ++copy) {
      calls_.push_back(arguments(tuned, caches + copy * extents_.bytes()));
    }
  }

  /// How many a recording holds.
  [[nodiscard]] std::size_t count() const {
    constexpr std::int64_t kLeast = 8;
    return calls_.size() * static_cast<std::size_t>(ceil_div(kLeast, extents_.copies()));
  }
  [[nodiscard]] const Arguments& operator[](std::size_t i) const {
    return calls_[i % calls_.size()];
  }

 private:
  [[nodiscard]] std::size_t row_bytes(const TuneCase& tuned) const {
    return static_cast<std::size_t>(extents_.batch * extents_.q_heads * size_of(tuned.type));
  }

  [[nodiscard]] Arguments arguments(const TuneCase& tuned, const std::byte* cache) const {
    const auto& [batch, keys, q_heads, k_bytes, v_bytes] = extents_;
    Arguments call;
    call.q = device_view<const void*>(q_.data(), tuned.type, {batch, 1, q_heads, tuned.head_dim});
    call.out = device_view<void*>(out_.data(), tuned.type, {batch, 1, q_heads, tuned.v_head_dim});
    call.kv.k =
        device_view<const void*>(cache, tuned.type, {batch, keys, kKvHeads, tuned.head_dim});
    call.kv.v = device_view<const void*>(cache + k_bytes, tuned.type,
                                         {batch, keys, kKvHeads, tuned.v_head_dim});
    call.lengths = indices(reinterpret_cast<const std::int32_t*>(lengths_.data()), batch);
    call.lengths.device = kDevice;
    return call;
  }

  Extents extents_;
  DeviceMemory q_, out_, lengths_;
  std::vector<Arguments> calls_;
};

/// A shape with what its calls need, and their times.
struct Candidate {
  LaunchShape shape;
  Plan plan;
  std::unique_ptr<DeviceMemory> workspace;
  std::size_t recording = 0;
  std::vector<double> seconds;
};

/// Whether two shapes came to the same: a device may have no room for what one allows.
bool same_launch(const Plan& a, const Plan& b) {
  return a.kernel.num_workers == b.kernel.num_workers && a.tile_n == b.tile_n &&
         a.kernel.cluster == b.kernel.cluster;
}

/// A candidate for every shape that the device takes differently.
std::vector<Candidate> record_all(const Backend& backend, DeviceTimer& timer,
                                  const Problem& problem, const CaseCalls& calls) {
  const Stream stream = timer.stream();
  std::vector<Candidate> candidates;
  for (const LaunchShape& shape : all_launch_shapes()) {
    ::setenv(kShapeVariable, text_of(shape).c_str(), 1);
    PlanOptions options;
    options.backend = backend.name();
    const Plan made = plan(problem, options);
    if (std::any_of(candidates.begin(), candidates.end(),
                    [&](const Candidate& other) { return same_launch(other.plan, made); })) {
      continue;
    }
    Candidate& candidate = candidates.emplace_back();
    candidate.shape = shape;
    candidate.plan = made;
    candidate.workspace = std::make_unique<DeviceMemory>(backend, made.workspace_bytes, stream);
    const std::span<std::byte> workspace = candidate.workspace->bytes();
    initialise(made, workspace, stream);
    run(made, calls[0], workspace, stream);  // loads the kernel
    candidate.recording = timer.record([&] {
      for (std::size_t i = 0; i < calls.count(); ++i) run(made, calls[i], workspace, stream);
    });
  }
  ::unsetenv(kShapeVariable);
  return candidates;
}

/// Replays all candidates turn by turn for about `seconds`.
void time_all(std::vector<Candidate>& candidates, DeviceTimer& timer, double seconds) {
  constexpr int kWarmRounds = 2;
  constexpr int kLeastRounds = 5;
  constexpr int kMostRounds = 100;
  const auto begin = std::chrono::steady_clock::now();
  for (int round = -kWarmRounds; round < kMostRounds; ++round) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
    if (round >= kLeastRounds && spent.count() > seconds) break;
    for (Candidate& candidate : candidates) {
      const double replay = timer.replay(candidate.recording);
      if (round >= 0) candidate.seconds.push_back(replay);
    }
  }
}

}  // namespace

std::vector<LaunchShape> all_launch_shapes() {
  std::vector<LaunchShape> all;
  for (const int cluster : {1, 2, 4, 8}) {
    for (const int blocks : {1, 2, 3}) {
      for (const int tile_n : {128, 64, 256}) all.push_back({blocks, tile_n, cluster});
    }
  }
  return all;
}

std::vector<TuneCase> tune_cases(const Backend& backend,
                                 const std::vector<std::int64_t>& megabytes) {
  // The first kernel with a v_head_dim stands for all: of K's dim alike if there is one.
  const auto kernel_of = [&](std::int64_t v_head_dim, std::int64_t row_tiles) {
    std::vector<std::int64_t> head_dims{v_head_dim};
    for (std::int64_t dim = 16; dim <= 256; dim += 16) head_dims.push_back(dim);
    for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
      for (const std::int64_t head_dim : head_dims) {
        const TuneCase tuned{type, head_dim, v_head_dim, row_tiles, megabytes.front()};
        const Support support = backend.supports(problem_of(tuned));
        if (support && support.kernel.tile_m == 8 * row_tiles) return tuned;
      }
    }
    return TuneCase{};
  };
  std::vector<TuneCase> cases;
  for (std::int64_t v_head_dim = 16; v_head_dim <= 256; v_head_dim += 16) {
    for (const std::int64_t row_tiles : {1, 2, 4}) {
      TuneCase tuned = kernel_of(v_head_dim, row_tiles);
      if (tuned.megabytes == 0) continue;
      for (const std::int64_t size : megabytes) {
        tuned.megabytes = size;
        cases.push_back(tuned);
      }
    }
  }
  return cases;
}

Tuner::Tuner(const Backend& backend, DeviceTimer& timer, std::int64_t most_megabytes)
    : backend_(backend), timer_(timer), bytes_(3 * most_megabytes * 1'000'000) {
  constexpr std::int64_t kLeast = 450'000'000;
  bytes_ = std::max(bytes_, kLeast);
  while (caches_ == nullptr) {
    try {
      caches_ = backend.allocate(static_cast<std::size_t>(bytes_), timer.stream());
    } catch (const std::bad_alloc&) {
      if (bytes_ == kLeast) throw;
      bytes_ = std::max(bytes_ / 2, kLeast);
    }
  }
  // bf16 in [−1, 1) read as f16 is finite and below 2: one filling does for both types.
  const std::vector<std::byte> values = random_values(ElementType::kBFloat16);
  const auto block = static_cast<std::int64_t>(values.size());
  for (std::int64_t done = 0; done < bytes_; done += block) {
    backend.copy(caches_ + done, values.data(),
                 static_cast<std::size_t>(std::min(block, bytes_ - done)), timer.stream());
  }
}

Tuner::~Tuner() { backend_.release(caches_, timer_.stream()); }

bool Tuner::fits(const TuneCase& tuned) const {
  const Extents extents(tuned);
  return extents.copies() * extents.bytes() <= bytes_;
}

TuneResult Tuner::measure(const TuneCase& tuned, double seconds) {
  const CaseCalls calls(backend_, timer_.stream(), tuned, caches_);
  std::vector<Candidate> candidates = record_all(backend_, timer_, problem_of(tuned), calls);
  time_all(candidates, timer_, seconds);
  timer_.forget();
  std::vector<double> medians;
  for (Candidate& candidate : candidates) {
    medians.push_back(times_of(std::move(candidate.seconds)).median);
  }
  // The first shape that is as good as the best, but for noise.
  constexpr double kNoise = 0.005;
  const double least = *std::min_element(medians.begin(), medians.end());
  const double most = *std::max_element(medians.begin(), medians.end());
  const auto chosen = std::find_if(medians.begin(), medians.end(),
                                   [&](double median) { return median <= (1 + kNoise) * least; });
  const auto per_call = [&](double replay) { return replay / static_cast<double>(calls.count()); };
  return {tuned, candidates[static_cast<std::size_t>(chosen - medians.begin())].shape,
          per_call(*chosen), per_call(most)};
}

}  // namespace leanattn::tools
