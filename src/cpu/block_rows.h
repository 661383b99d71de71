// Where the keys of a block lie: contiguous or paged, any strides, 64-bit.
#pragma once

#include "cpu/lean_tile.h"

namespace leanattn::cpu {

/// Fills `rows` for keys [first_key + visible.begin, first_key + visible.end) of the
/// segment, and completes groups of lanes of K. Reads no page-table slot but those of
/// visible keys.
void find_rows(const Segment& segment, std::int64_t first_key, Range visible, BlockRows& rows);

}  // namespace leanattn::cpu
