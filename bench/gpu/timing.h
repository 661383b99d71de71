// Times of graphs, replayed turn by turn.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "times.h"

namespace leanattn::bench {

using tools::Times;
using tools::times_of;

/// Seconds of each of `rounds` replays of each graph, [graph][round]: in a round all graphs
/// run one after the other. The host queues ahead of the device, so that no replay waits
/// for its launch.
[[nodiscard]] std::vector<std::vector<double>> replay(std::span<const cudaGraphExec_t> graphs,
                                                      std::int64_t rounds, cudaStream_t stream);

}  // namespace leanattn::bench
