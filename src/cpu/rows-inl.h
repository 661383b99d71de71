// How rows of K and V become vectors of float, per element type; per target.
//
// A row is read in pairs of vectors: 2·Lanes elements at a time. Which element
// lands in which lane is the row's order: natural, or even elements in the first
// vector and odd ones in the second (bf16: a shift and a mask instead of two
// widenings). Q is packed, and O unpacked, in the same order.
#if defined(LEANATTN_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LEANATTN_CPU_ROWS_INL_H_
#undef LEANATTN_CPU_ROWS_INL_H_
#else
#define LEANATTN_CPU_ROWS_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace leanattn::cpu {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kVectorBytes / sizeof(float)>;
using DU = hn::RebindToUnsigned<D>;
using V = hn::Vec<D>;

inline constexpr D d{};
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D{}));
inline constexpr int kPair = 2 * kLanes;
/// 32 vector registers: AVX-512 and NEON; else 16.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;
/// Packed query rows that a register tile holds at most.
inline constexpr int kMostRows = kManyRegisters ? 8 : 4;
/// How many of `rows` left a register tile takes: the most, or 4, or the rest.
constexpr int rows_at_once(std::int64_t rows) {
  return rows >= kMostRows ? kMostRows : rows >= 4 ? 4 : static_cast<int>(rows);
}

struct Pair {
  V first;
  V second;

  // The constructors that a compiler adds by itself would lack HWY_ATTR, and on Arm
  // gcc then refuses to inline those of V.
  HWY_INLINE HWY_ATTR Pair() {}
  HWY_INLINE HWY_ATTR Pair(V a, V b) : first(a), second(b) {}
};

/// Vector order to natural order and back, within one pair of vectors: element i
/// of the pair stands at place(i).
struct NaturalOrder {
  static constexpr int place(int i) { return i; }
};
struct EvenOddOrder {
  static constexpr int place(int i) { return i % 2 * kLanes + i / 2; }
};

template <class Order>
HWY_ATTR void to_vector_order(const float* natural, float* ordered) {
  for (int i = 0; i < kPair; ++i) ordered[Order::place(i)] = natural[i];
}
template <class Order>
HWY_ATTR void to_natural_order(const float* ordered, float* natural) {
  for (int i = 0; i < kPair; ++i) natural[i] = ordered[Order::place(i)];
}

struct F32Rows {
  using Element = float;
  using Order = NaturalOrder;
  static HWY_INLINE HWY_ATTR Pair load(const void* row) {
    const float* p = static_cast<const float*>(row);
    return {hn::LoadU(d, p), hn::LoadU(d, p + kLanes)};
  }
};

struct F16Rows {
  using Element = std::uint16_t;
  using Order = NaturalOrder;
  static HWY_INLINE HWY_ATTR Pair load(const void* row) {
    const hn::Rebind<hwy::float16_t, D> dh;
    const auto* p = static_cast<const hwy::float16_t*>(row);
    return {hn::PromoteTo(d, hn::LoadU(dh, p)), hn::PromoteTo(d, hn::LoadU(dh, p + kLanes))};
  }
};

struct Bf16Rows {
  using Element = std::uint16_t;
  using Order = EvenOddOrder;
  static HWY_INLINE HWY_ATTR Pair load(const void* row) {
    const DU du;
    const auto both = hn::LoadU(du, static_cast<const std::uint32_t*>(row));
    return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
            hn::BitCast(d, hn::And(both, hn::Set(du, 0xffff0000u)))};
  }
};

/// Elements [begin, dim) of a row, zero-padded to a pair: nothing past the row is
/// read.
template <class Rows>
struct Tail {
  HWY_ALIGN typename Rows::Element element[kPair] = {};
  HWY_INLINE HWY_ATTR void fill(const void* row, std::int64_t begin, std::int64_t dim) {
    std::memcpy(element, static_cast<const typename Rows::Element*>(row) + begin,
                static_cast<std::size_t>(dim - begin) * sizeof(element[0]));
  }
};

/// [a, b, c, d] with each lane the sum of that vector's lanes. One tree of
/// additions for every lane, so a score does not depend on its neighbours.
HWY_INLINE HWY_ATTR hn::Vec<hn::FixedTag<float, 4>> sums_of_four(V a, V b, V c, V e) {
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const hn::RepartitionToWide<DU> dd;
  const auto low = hn::InterleaveLower(dd, hn::BitCast(dd, ab), hn::BitCast(dd, ce));
  const auto high = hn::InterleaveUpper(dd, hn::BitCast(dd, ab), hn::BitCast(dd, ce));
  const V blocks = hn::Add(hn::BitCast(d, low), hn::BitCast(d, high));
#if HWY_MAX_BYTES == 16
  return blocks;
#else
  const hn::Half<D> dh;
  const auto half = hn::Add(hn::LowerHalf(dh, blocks), hn::UpperHalf(dh, blocks));
#if HWY_MAX_BYTES == 32
  return half;
#else
  const hn::FixedTag<float, 4> d4;
  return hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half));
#endif
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
