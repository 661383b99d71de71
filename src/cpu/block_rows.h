// Where the keys of a block lie: contiguous or paged, any strides, 64-bit.
#pragma once

#include "cpu/lean_tile.h"

namespace leanattn::cpu {

/// Fills `rows` for lanes `visible` of the block that begins at key `first_key`, and
/// completes groups of lanes of K. Of a paged cache it finds up to kRowsAhead rows of
/// the segment beyond; returns the end of the lanes found. Reads no page-table slot
/// but those of the segment's keys.
std::int64_t find_rows(const Segment& segment, std::int64_t first_key, Range visible,
                       BlockRows& rows);

}  // namespace leanattn::cpu
