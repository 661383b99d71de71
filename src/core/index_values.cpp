#include "core/index_values.h"

#include <cstddef>
#include <vector>

namespace leanattn::core {
namespace {

/// An index tensor of a device, in host memory.
class HostCopy {
 public:
  HostCopy(const Backend& backend, const IndexView& view, const Stream& stream) : view_(view) {
    view_.device = {};
    if (!view.given() || view.rows == 0 || view.columns == 0) return;
    const std::int64_t elements = (view.rows - 1) * view.row_stride + view.columns;
    values_.resize(static_cast<std::size_t>(elements * size_of(view.type)));
    backend.copy(values_.data(), view.data, values_.size(), stream);
    view_.data = values_.data();
  }
  [[nodiscard]] const IndexView& view() const { return view_; }

 private:
  std::vector<std::byte> values_;
  IndexView view_;
};

}  // namespace

void check_index_values_of_device(const Plan& plan, const Arguments& arguments,
                                  const Stream& stream) {
  const auto copy = [&](const IndexView& view) { return HostCopy(*plan.backend, view, stream); };
  const HostCopy lengths = copy(arguments.lengths);
  const HostCopy q_offsets = copy(arguments.q_offsets);
  const HostCopy page_table = copy(arguments.kv.page_table);
  const HostCopy page_ids = copy(arguments.kv.page_ids);
  const HostCopy page_indptr = copy(arguments.kv.page_indptr);
  const HostCopy cache_rows = copy(arguments.kv.cache_rows);
  Arguments seen = arguments;
  seen.lengths = lengths.view();
  seen.q_offsets = q_offsets.view();
  seen.kv.page_table = page_table.view();
  seen.kv.page_ids = page_ids.view();
  seen.kv.page_indptr = page_indptr.view();
  seen.kv.cache_rows = cache_rows.view();
  check_index_values(plan.problem, seen);
}

}  // namespace leanattn::core
