// See timing.h.
#include "timing.h"

#include "handles.h"

namespace leanattn::bench {

std::vector<std::vector<double>> replay(std::span<const cudaGraphExec_t> graphs,
                                        std::int64_t rounds, cudaStream_t stream) {
  struct Replay {
    Owner<cudaEvent_t> begin = make_event();
    Owner<cudaEvent_t> end = make_event();
  };
  std::vector<Replay> replays(graphs.size() * static_cast<std::size_t>(rounds));
  auto next = replays.begin();
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (const cudaGraphExec_t graph : graphs) {
      check_cuda(cudaEventRecord(next->begin.get(), stream));
      check_cuda(cudaGraphLaunch(graph, stream));
      check_cuda(cudaEventRecord(next->end.get(), stream));
      ++next;
    }
  }
  check_cuda(cudaStreamSynchronize(stream));
  std::vector<std::vector<double>> seconds(graphs.size());
  for (std::size_t i = 0; i < replays.size(); ++i) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, replays[i].begin.get(), replays[i].end.get()));
    seconds[i % graphs.size()].push_back(static_cast<double>(milliseconds) * 1e-3);
  }
  return seconds;
}

}  // namespace leanattn::bench
