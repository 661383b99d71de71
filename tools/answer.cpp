// See answer.h.
#include "answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "leanattn/attention.h"
#include "leanattn/half.h"

namespace leanattn::tools {
namespace {

double roundoff(ElementType type) {
  switch (type) {
    case ElementType::kFloat16: return 0x1p-11;
    case ElementType::kBFloat16: return 0x1p-8;
    default: return 0x1p-24;
  }
}

template <int kRank, class Pointer>
std::vector<double> read_all(const TensorView<kRank, Pointer>& view) {
  std::int64_t count = 1;
  for (const std::int64_t size : view.shape) count *= size;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (std::size_t d = kRank; d-- > 0; rest /= view.shape[d]) {
      offset += rest % view.shape[d] * view.strides[d];
    }
    values[static_cast<std::size_t>(i)] = load_float(view.data, view.type, offset);
  }
  return values;
}

double largest_finite(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

double norm(const void* data, ElementType type, std::int64_t offset, std::int64_t size) {
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const double value = load_float(data, type, offset + i);
    sum += value * value;
  }
  return std::sqrt(sum);
}

// Offset in k of key j of sequence b, head 0.
std::int64_t key_offset(const KvView& kv, std::int64_t b, std::int64_t j) {
  if (kv.layout == KvLayout::kContiguous) {
    return kv.k.offset(kv.cache_rows.given() ? kv.cache_rows[b] : b, j);
  }
  const std::int64_t entry = j / kv.page_size();
  const std::int64_t page = kv.layout == KvLayout::kPagedDense
                                ? kv.page_table.at(b, entry)
                                : kv.page_ids[kv.page_indptr[b] + entry];
  return kv.k.offset(page, j % kv.page_size());
}

// The reference writes f32 into buffers of its own.
Answer reference_into_buffers(Arguments arguments, const ScoreRules& rules) {
  const auto& shape = arguments.out.shape;
  const std::int64_t rows = shape[0] * shape[1] * shape[2];
  std::vector<float> out(static_cast<std::size_t>(rows * shape[3] + 1));
  std::vector<float> lse(static_cast<std::size_t>(rows + 1));
  arguments.out = contiguous<4>(static_cast<void*>(out.data()), ElementType::kFloat32, shape);
  arguments.lse = contiguous<3>(static_cast<void*>(lse.data()), ElementType::kFloat32,
                                {shape[0], shape[1], shape[2]});
  reference(arguments, rules);
  return read_answer(arguments);
}

std::string coordinates(const Arguments& arguments, std::int64_t row) {
  const std::int64_t heads = arguments.q.shape[2];
  const std::int64_t queries = arguments.q.shape[1];
  std::int64_t query = row / heads % queries;
  std::int64_t b = row / heads / queries;
  if (arguments.q_offsets.given()) {
    while (b + 2 < arguments.q_offsets.columns && arguments.q_offsets[b + 1] <= query) ++b;
    query -= arguments.q_offsets[b];
  }
  return fmt::format("sequence {}, query {}, head {}", b, query, row % heads);
}

double cosine_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double aa = 0, bb = 0, ab = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    aa += a[i] * a[i];
    bb += b[i] * b[i];
    ab += a[i] * b[i];
  }
  if (aa == 0 && bb == 0) return 0;
  return aa == 0 || bb == 0 ? 1 : std::max(0.0, 1 - ab / std::sqrt(aa * bb));
}

}  // namespace

Answer read_answer(const Arguments& arguments) {
  return {read_all(arguments.out),
          arguments.lse.given() ? read_all(arguments.lse) : std::vector<double>{}};
}

Answer exact_answer(const Arguments& arguments, const ScoreRules& rules) {
  return reference_into_buffers(arguments, rules);
}

std::vector<double> mean_magnitudes(const Arguments& arguments, const ScoreRules& rules) {
  Arguments positive = arguments;
  TensorView<4>& v = positive.kv.v;
  std::int64_t extent = 1;  // elements from the first to the last, whatever the order
  for (std::size_t d = 0; d < 4; ++d) {
    if (v.shape[d] == 0) return read_all(arguments.out);  // nothing to weigh: any size fits
    extent += (v.shape[d] - 1) * v.strides[d];
  }
  std::vector<std::byte> copy(static_cast<std::size_t>(extent * size_of(v.type)));
  for (std::int64_t i = 0; i < extent; ++i) {
    store_float(copy.data(), v.type, i, std::fabs(load_float(v.data, v.type, i)));
  }
  v.data = copy.data();
  return reference_into_buffers(positive, rules).out;
}

double largest_key_norm(const Arguments& arguments) {
  const KvView& kv = arguments.kv;
  double largest = 0;
  for (std::int64_t b = 0; b < arguments.lengths.columns; ++b) {
    for (std::int64_t j = 0; j < arguments.lengths[b]; ++j) {
      const std::int64_t offset = key_offset(kv, b, j);
      for (std::int64_t head = 0; head < kv.k.shape[2]; ++head) {
        const double length =
            norm(kv.k.data, kv.k.type, offset + head * kv.k.strides[2], kv.k.shape[3]);
        if (std::isfinite(length)) largest = std::max(largest, length);
      }
    }
  }
  return largest;
}

Answer tolerance_of(const Arguments& arguments, const ScoreRules& rules, const Answer& wanted,
                    ElementType wanted_type, double key_norm,
                    const std::vector<double>& magnitudes) {
  const Problem problem = problem_of(arguments, rules);
  const TensorView<4>& q = arguments.q;
  double added = rules.softcap;
  if (arguments.alibi_slopes.given()) {
    added +=
        largest_finite(read_all(arguments.alibi_slopes)) * static_cast<double>(problem.max_kv_len);
  }
  if (arguments.bias.given() && arguments.bias.type != ElementType::kBool) {
    added += largest_finite(read_all(arguments.bias));
  }
  const double rounding = roundoff(wanted_type) + roundoff(arguments.out.type);
  Answer tolerance;
  std::size_t row = 0;
  for (std::int64_t b = 0; b < q.shape[0]; ++b) {
    for (std::int64_t i = 0; i < q.shape[1]; ++i) {
      for (std::int64_t h = 0; h < q.shape[2]; ++h, ++row) {
        const double length = norm(q.data, q.type, q.offset(b, i, h), q.shape[3]);
        const double delta = 0x1p-24 * (2 * std::fabs(problem.scale()) * length * key_norm + added);
        for (std::int64_t d = 0; d < problem.v_head_dim; ++d) {
          const std::size_t at = tolerance.out.size();
          const double magnitude = magnitudes.size() == 1 ? magnitudes[0] : magnitudes[at];
          tolerance.out.push_back(2 * (rounding * std::fabs(wanted.out[at]) +
                                       (roundoff(arguments.kv.v.type) + 2 * delta) * magnitude));
        }
        if (wanted.lse.empty()) continue;
        tolerance.lse.push_back(2 * (delta + 0x1p-24 * (1 + std::fabs(wanted.lse[row]))));
      }
    }
  }
  return tolerance;
}

Difference compare(const Arguments& arguments, const Answer& got, const Answer& wanted,
                   const Answer& tolerance) {
  Difference difference;
  double largest = -1;
  const auto look = [&](double mine, double theirs, double allowed, auto name) {
    double share = 0;
    if (mine != theirs && !(std::isnan(mine) && std::isnan(theirs))) {
      const double distance = std::fabs(mine - theirs);
      // An allowed difference that is NaN or infinite says nothing: nothing passes.
      share = std::isfinite(distance) && std::isfinite(allowed) && allowed > 0
                  ? distance / allowed
                  : std::numeric_limits<double>::infinity();
    }
    if (share <= largest) return;
    largest = share;
    difference.worst =
        fmt::format("{}: {:.7g} where {:.7g} is wanted, off by {:.2g} of {:.2g} allowed", name(),
                    mine, theirs, std::fabs(mine - theirs), allowed);
  };
  const auto dims = static_cast<std::size_t>(std::max<std::int64_t>(arguments.out.shape[3], 1));
  for (std::size_t i = 0; i < wanted.out.size(); ++i) {
    look(got.out[i], wanted.out[i], tolerance.out[i], [&] {
      return fmt::format("out at {}, dim {}",
                         coordinates(arguments, static_cast<std::int64_t>(i / dims)), i % dims);
    });
  }
  for (std::size_t i = 0; i < wanted.lse.size(); ++i) {
    look(got.lse[i], wanted.lse[i], tolerance.lse[i], [&] {
      return fmt::format("lse at {}", coordinates(arguments, static_cast<std::int64_t>(i)));
    });
  }
  difference.share = std::max(largest, 0.0);
  difference.within = difference.share <= 1;
  difference.cosine_difference = cosine_difference(got.out, wanted.out);
  return difference;
}

}  // namespace leanattn::tools
