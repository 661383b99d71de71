#include "cpu/output.h"

#include "leanattn/half.h"

namespace leanattn::cpu {
namespace {

/// out = O·factor, rounded to the output's type; zeros where O is nullptr.
void write_row(void* out, ElementType type, std::int64_t offset, const float* row, float factor,
               std::int64_t dim) {
  const auto value = [&](std::int64_t i) { return row == nullptr ? 0.0f : row[i] * factor; };
  switch (type) {
    case ElementType::kFloat16: {
      auto* to = static_cast<std::uint16_t*>(out) + offset;
      for (std::int64_t i = 0; i < dim; ++i) to[i] = float16_of_float(value(i));
      break;
    }
    case ElementType::kBFloat16: {
      auto* to = static_cast<std::uint16_t*>(out) + offset;
      for (std::int64_t i = 0; i < dim; ++i) to[i] = bfloat16_of_float(value(i));
      break;
    }
    default: {
      auto* to = static_cast<float*>(out) + offset;
      for (std::int64_t i = 0; i < dim; ++i) to[i] = value(i);
    }
  }
}

}  // namespace

void write_rows(const Plan& plan, const Arguments& arguments, const SequenceShape& shape,
                std::int64_t sequence, std::int64_t kv_head, Range rows, const RowStates& states) {
  const Problem& problem = plan.problem;
  const std::int64_t group = problem.group_size();
  const std::int64_t batch_index = problem.ragged_q ? 0 : sequence;
  const MutableTensorView<4>& out = arguments.out;
  const MutableTensorView<3>& lse = arguments.lse;
  for (std::int64_t r = 0; r < rows.size(); ++r) {
    const std::int64_t packed = rows.begin + r;
    const std::int64_t query = shape.first_query + packed / group;
    const std::int64_t head = kv_head * group + packed % group;
    SoftmaxState state;
    if (states.out != nullptr) state = {states.max[r], states.sum[r]};
    const float* row =
        state.empty() ? nullptr : states.out + r * states.out_floats;  // empty: O is not read
    float factor = 1.0f;
    if (problem.has_sinks) {
      const TensorView<1>& sinks = arguments.sinks;
      factor = add_sink(state, load_float(sinks.data, sinks.type, sinks.offset(head)));
    }
    write_row(out.data, out.type, out.offset(batch_index, query, head), row,
              factor * normaliser(state), problem.v_head_dim);
    if (lse.given()) {
      static_cast<float*>(lse.data)[lse.offset(batch_index, query, head)] = lse_of(state);
    }
  }
}

}  // namespace leanattn::cpu
