// O += P·V for one block: kRows rows × kVectors vectors of O in registers, one key
// after the other; per target.
#if defined(LEANATTN_CPU_ACCUMULATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LEANATTN_CPU_ACCUMULATE_INL_H_
#undef LEANATTN_CPU_ACCUMULATE_INL_H_
#else
#define LEANATTN_CPU_ACCUMULATE_INL_H_
#endif

#include "cpu/score-inl.h"

HWY_BEFORE_NAMESPACE();
namespace leanattn::cpu {
namespace {
namespace HWY_NAMESPACE {

/// The weight of a key that a row does not see: its value is not touched.
inline constexpr float kHidden = -1.0f;

struct AccumulateArgs {
  const void* const* v;               // [kBlock] value rows
  std::int64_t begin;                 // first key
  std::int64_t end;                   // past the last
  const float* weights;               // [rows][kBlock]; kHidden where hidden
  const std::uint16_t* bf16_weights;  // [rows][kBlock], hidden ones 0
  const void* zero_row;
  std::int64_t dim;  // elements of a value
  float* out;        // [rows][out_floats] in the order of V's vectors
  std::int64_t out_floats;
  Stream stream;  // of the values, on the first pass over the block
  bool touch;     // whether one pass does not read whole rows
};

/// Keeps the stream of values going at key j, if it is one of the block's.
HWY_INLINE HWY_ATTR void follow(const AccumulateArgs& args, std::int64_t j) {
  if (j < args.begin || j >= args.end) return;
  if (args.touch) args.stream.touch(j);
  args.stream.run_ahead(j);
}

template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void load_out(V (&acc)[kRows][kVectors], const AccumulateArgs& args,
                                  std::int64_t i) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) {
      acc[r][c] = hn::Load(d, args.out + r * args.out_floats + i + c * kLanes);
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE HWY_ATTR void store_out(const V (&acc)[kRows][kVectors], const AccumulateArgs& args,
                                   std::int64_t i) {
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int c = 0; c < kVectors; ++c) {
      hn::Store(acc[r][c], d, args.out + r * args.out_floats + i + c * kLanes);
    }
  }
}

/// Values of any type as floats, one key after the other.
template <class Rows>
struct FloatValues {
  using Order = typename Rows::Order;

  /// Elements [i, i + kPairs·kPair) of O, kRows rows; `kTail`: the last, incomplete
  /// pair. With `kMasked` (one row) hidden keys are passed over.
  template <int kRows, int kPairs, bool kTail, bool kMasked>
  static HWY_NOINLINE HWY_ATTR void columns(const AccumulateArgs& args, std::int64_t i);
};

template <class Rows>
template <int kRows, int kPairs, bool kTail, bool kMasked>
HWY_NOINLINE HWY_ATTR void FloatValues<Rows>::columns(const AccumulateArgs& args, std::int64_t i) {
  V acc[kRows][2 * kPairs];
  load_out(acc, args, i);
  for (std::int64_t j = args.begin; j < args.end; ++j) {
    if constexpr (kMasked) {
      if (args.weights[j] == kHidden) continue;
    }
    follow(args, j);
    const auto* row = static_cast<const typename Rows::Element*>(args.v[j]) + i;
    Pair value[kPairs];
    if constexpr (kTail) {
      Tail<Rows> tail;
      tail.fill(args.v[j], i, args.dim);
      value[0] = Rows::load(tail.element);
    } else {
#pragma GCC unroll 16
      for (int c = 0; c < kPairs; ++c) value[c] = Rows::load(row + c * kPair);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, args.weights[r * kBlock + j]);
#pragma GCC unroll 16
      for (int c = 0; c < kPairs; ++c) {
        acc[r][2 * c] = hn::MulAdd(weight, value[c].first, acc[r][2 * c]);
        acc[r][2 * c + 1] = hn::MulAdd(weight, value[c].second, acc[r][2 * c + 1]);
      }
    }
  }
  store_out(acc, args, i);
}

#if LEANATTN_BF16_PRODUCTS
/// bf16 values and bf16 weights, two keys at a time, multiplied as they are. The
/// values of the two keys are interleaved within blocks of 128 bits, which gives
/// O an order of its own.
struct Bf16Values {
  struct Order {
    static constexpr int place(int i) { return i / 4 % 2 * kLanes + i / 8 * 4 + i % 4; }
  };

  static HWY_INLINE HWY_ATTR const void* row(const AccumulateArgs& args, std::int64_t j,
                                             bool masked) {
    const bool weighs = j >= args.begin && j < args.end && !(masked && args.weights[j] == kHidden);
    return weighs ? args.v[j] : args.zero_row;
  }

  template <int kRows, int kPairs, bool kTail, bool kMasked>
  static HWY_NOINLINE HWY_ATTR void columns(const AccumulateArgs& args, std::int64_t i) {
    V acc[kRows][2 * kPairs];
    load_out(acc, args, i);
    for (std::int64_t j = args.begin & ~std::int64_t{1}; j < args.end; j += 2) {
      const void* even_row = row(args, j, kMasked);
      const void* odd_row = row(args, j + 1, kMasked);
      follow(args, j);
      follow(args, j + 1);
      Tail<Bf16Rows> tail[2];
      const std::uint16_t* even = static_cast<const std::uint16_t*>(even_row) + i;
      const std::uint16_t* odd = static_cast<const std::uint16_t*>(odd_row) + i;
      if constexpr (kTail) {
        tail[0].fill(even_row, i, args.dim);
        tail[1].fill(odd_row, i, args.dim);
        even = tail[0].element;
        odd = tail[1].element;
      }
      __m512i value[2 * kPairs];
#pragma GCC unroll 16
      for (int c = 0; c < kPairs; ++c) {
        const __m512i first = _mm512_loadu_si512(even + c * kPair);
        const __m512i second = _mm512_loadu_si512(odd + c * kPair);
        value[2 * c] = _mm512_unpacklo_epi16(first, second);
        value[2 * c + 1] = _mm512_unpackhi_epi16(first, second);
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        std::int32_t both;
        std::memcpy(&both, args.bf16_weights + r * kBlock + j, sizeof(both));
        const __m512bh weights = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
#pragma GCC unroll 16
        for (int c = 0; c < 2 * kPairs; ++c) {
          acc[r][c].raw =
              _mm512_dpbf16_ps(acc[r][c].raw, weights, reinterpret_cast<__m512bh>(value[c]));
        }
      }
    }
    store_out(acc, args, i);
  }
};
#endif

/// Pairs of vectors of O that kRows rows hold at once.
constexpr int pairs_at_once(int rows) {
  if (kManyRegisters) return rows == 8 ? 1 : rows >= 3 ? 2 : 4;
  return rows >= 3 ? 1 : 2;
}

/// Columns of O from `i` on, kPairs pairs at a time as long as they fill; returns the
/// first column not done.
template <class Values, int kRows, int kPairs, bool kMasked>
HWY_ATTR std::int64_t accumulate_pairs(AccumulateArgs& args, std::int64_t i) {
  for (; i + kPairs * kPair <= args.dim; i += kPairs * kPair) {
    Values::template columns<kRows, kPairs, false, kMasked>(args, i);
    args.stream = {};
  }
  if constexpr (kPairs > 1) return accumulate_pairs<Values, kRows, kPairs / 2, kMasked>(args, i);
  return i;
}

template <class Values, int kRows, bool kMasked>
HWY_ATTR void accumulate_rows(AccumulateArgs args) {
  constexpr int kPairs = pairs_at_once(kRows);
  args.touch = args.dim > kPairs * kPair;
  const std::int64_t i = accumulate_pairs<Values, kRows, kPairs, kMasked>(args, 0);
  if (i < args.dim) Values::template columns<kRows, 1, true, kMasked>(args, i);
}

/// O of `rows` rows += P·V. `masked`: some row does not see some key of the block.
template <class Values>
HWY_ATTR void accumulate(AccumulateArgs args, std::int64_t rows, bool masked) {
  while (rows > 0) {
    const int now = masked ? 1 : rows_at_once(rows);
    switch (now) {
      case 1:
        masked ? accumulate_rows<Values, 1, true>(args) : accumulate_rows<Values, 1, false>(args);
        break;
      case 2: accumulate_rows<Values, 2, false>(args); break;
      case 3: accumulate_rows<Values, 3, false>(args); break;
      case 4: accumulate_rows<Values, 4, false>(args); break;
      default: accumulate_rows<Values, kMostRows, false>(args); break;
    }
    rows -= now;
    args.weights += now * kBlock;
    args.bf16_weights += now * kBlock;
    args.out += now * args.out_floats;
    args.stream = {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
