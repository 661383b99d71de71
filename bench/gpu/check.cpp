// See check.h.
#include "check.h"

#include <algorithm>
#include <cmath>

#include "leanattn/attention.h"
#include "plain_attention.h"

namespace leanattn::bench {

Wanted::Wanted(const Case& shape, const CaseData& data, std::int64_t copies, cudaStream_t stream)
    : shape_(shape),
      copies_(copies),
      wanted_(copies * data.out_elements() * static_cast<std::int64_t>(sizeof(float))),
      sums_(2 * static_cast<std::int64_t>(sizeof(double))) {
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    plain_attention(data.arguments(copy), shape.rules(),
                    wanted_.as<float>() + copy * data.out_elements(), stream);
  }
  check_cuda(cudaStreamSynchronize(stream));
}

double Wanted::error(const CaseData& data, cudaStream_t stream) const {
  double most = 0;
  for (std::int64_t copy = 0; copy < copies_; ++copy) {
    double sums[2] = {};
    check_cuda(cudaMemsetAsync(sums_.data(), 0, sizeof(sums), stream));
    add_squares(data.arguments(copy).out.data, shape_.type,
                wanted_.as<float>() + copy * data.out_elements(), data.out_elements(),
                sums_.as<double>(), stream);
    check_cuda(cudaMemcpyAsync(sums, sums_.data(), sizeof(sums), cudaMemcpyDeviceToHost, stream));
    check_cuda(cudaStreamSynchronize(stream));
    const double error = std::sqrt(sums[0] / sums[1]);
    if (std::isnan(error)) return error;
    most = std::max(most, error);
  }
  return most;
}

void check_yardstick(RandomBuffer& caches, cudaStream_t stream) {
  constexpr double kAllowed = 1e-5;  // outputs are f32
  Case small;
  small.num_q_heads = 8;
  small.num_kv_heads = 2;
  small.q_len = 3;
  small.causal = true;
  small.lengths = {601, 37, 2};  // the last has fewer keys than queries
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    for (const std::int64_t page_size : {0, 16}) {
      for (const std::int64_t head_dim : {64, 128}) {
        small.type = type;
        small.page_size = page_size;
        small.head_dim = head_dim;
        small.heads_first = head_dim == 64;
        caches.set_type(type, stream);
        const CaseData data(small, 1, caches, stream);
        const auto count = static_cast<std::size_t>(data.out_elements());
        const DeviceBuffer out(static_cast<std::int64_t>(count * sizeof(float)));
        check_cuda(cudaMemsetAsync(out.data(), 0xff, count * sizeof(float), stream));
        plain_attention(data.arguments(0), small.rules(), out.as<float>(), stream);
        check_cuda(cudaStreamSynchronize(stream));
        std::vector<float> got(count);
        check_cuda(
            cudaMemcpy(got.data(), out.data(), count * sizeof(float), cudaMemcpyDeviceToHost));
        std::vector<float> wanted(count, NAN);
        const CaseData::OnHost on_host(data, wanted.data());
        reference(on_host.arguments(), small.rules());
        double error = 0;
        double norm = 0;
        for (std::size_t i = 0; i < count; ++i) {
          error += std::pow(static_cast<double>(got[i]) - static_cast<double>(wanted[i]), 2);
          norm += std::pow(static_cast<double>(wanted[i]), 2);
        }
        const double relative = std::sqrt(error / norm);
        check<Error>(relative <= kAllowed, "the device's plain attention (", name_of(type), ", ",
                     small.shape_text(), ") is off by ", relative, " of the reference; ", kAllowed,
                     " is allowed");
      }
    }
  }
}

}  // namespace leanattn::bench
