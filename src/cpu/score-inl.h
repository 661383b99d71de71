// S = Q·Kᵀ for one block: kRows packed query rows × kKeys keys in registers; per
// target.
#if defined(LEANATTN_CPU_SCORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LEANATTN_CPU_SCORE_INL_H_
#undef LEANATTN_CPU_SCORE_INL_H_
#else
#define LEANATTN_CPU_SCORE_INL_H_
#endif

#include "cpu/rows-inl.h"
#include "cpu/stream-inl.h"

HWY_BEFORE_NAMESPACE();
namespace leanattn::cpu {
namespace {
namespace HWY_NAMESPACE {

struct ScoreArgs {
  const void* const* k;  // [kBlock] key rows
  std::int64_t begin;    // first key, a multiple of 8
  std::int64_t end;      // past the last, a multiple of 8
  const void* q;         // packed rows
  std::int64_t q_bytes;  // from one packed row to the next
  std::int64_t dim;      // elements of a key
  float* scores;         // [rows][kBlock]
  Stream stream;         // of the keys, on the first pass over the block
};

/// Keys of any type as floats: acc += key·q over one pair of vectors.
template <class Rows>
struct FloatKeys {
  using Key = Pair;
  using Query = float;
  using KeyRows = Rows;
  static HWY_INLINE HWY_ATTR Key load(const void* row) { return Rows::load(row); }
  static HWY_INLINE HWY_ATTR void add(V& acc, const Key& key, const float* q) {
    acc = hn::MulAdd(key.first, hn::Load(d, q), acc);
    acc = hn::MulAdd(key.second, hn::Load(d, q + kLanes), acc);
  }
};

#if LEANATTN_BF16_PRODUCTS
/// bf16 keys and queries, multiplied as they are (VDPBF16PS).
struct Bf16Keys {
  using Key = __m512i;
  using Query = std::uint16_t;
  using KeyRows = Bf16Rows;
  static HWY_INLINE HWY_ATTR Key load(const void* row) { return _mm512_loadu_si512(row); }
  static HWY_INLINE HWY_ATTR void add(V& acc, const Key& key, const std::uint16_t* q) {
    acc.raw = _mm512_dpbf16_ps(acc.raw, reinterpret_cast<__m512bh>(key),
                               reinterpret_cast<__m512bh>(_mm512_load_si512(q)));
  }
};
#endif

/// One step of the dot products: elements [i, i + kPair) of kKeys keys and kRows
/// queries. `keys[j]` points at those elements of key j.
template <class Keys, int kRows, int kKeys>
HWY_INLINE HWY_ATTR void score_step(V (&acc)[kRows][kKeys], const void* const (&keys)[kKeys],
                                    const typename Keys::Query* const (&q)[kRows], std::int64_t i) {
  typename Keys::Key key[kKeys];
#pragma GCC unroll 16
  for (int j = 0; j < kKeys; ++j) key[j] = Keys::load(keys[j]);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int j = 0; j < kKeys; ++j) Keys::add(acc[r][j], key[j], q[r] + i);
  }
}

template <int kRows, int kKeys>
HWY_INLINE HWY_ATTR void store_scores(const V (&acc)[kRows][kKeys], float* scores) {
  const hn::FixedTag<float, 4> d4;
  if constexpr (kKeys % 4 == 0) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; j += 4) {
        hn::StoreU(sums_of_four(acc[r][j], acc[r][j + 1], acc[r][j + 2], acc[r][j + 3]), d4,
                   scores + r * kBlock + j);
      }
    }
  } else {
    static_assert(kKeys == 2 && kRows % 2 == 0);
    const hn::FixedTag<float, 2> d2;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; r += 2) {
      const auto sums = sums_of_four(acc[r][0], acc[r][1], acc[r + 1][0], acc[r + 1][1]);
      hn::StoreU(hn::LowerHalf(d2, sums), d2, scores + r * kBlock);
      hn::StoreU(hn::UpperHalf(d2, sums), d2, scores + (r + 1) * kBlock);
    }
  }
}

template <class Keys, int kRows, int kKeys>
HWY_NOINLINE HWY_ATTR void score_rows(const ScoreArgs& args) {
  using Element = typename Keys::KeyRows::Element;
  const std::int64_t whole = args.dim / kPair * kPair;
  const typename Keys::Query* q[kRows];
  for (int r = 0; r < kRows; ++r) {
    q[r] = reinterpret_cast<const typename Keys::Query*>(static_cast<const char*>(args.q) +
                                                         r * args.q_bytes);
  }
  for (std::int64_t j = args.begin; j < args.end; j += kKeys) {
    V acc[kRows][kKeys];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kKeys; ++n) acc[r][n] = hn::Zero(d);
    }
    const void* keys[kKeys];
    if constexpr (kRows == 1) {
      // Key by key: the loads are in the order of memory by themselves.
#pragma GCC unroll 16
      for (int n = 0; n < kKeys; ++n) {
        args.stream.run_ahead(j + n);
        const auto* key = static_cast<const Element*>(args.k[j + n]);
        for (std::int64_t i = 0; i < whole; i += kPair) {
          Keys::add(acc[0][n], Keys::load(key + i), q[0] + i);
        }
      }
    } else {
      for (int n = 0; n < kKeys; ++n) {
        args.stream.touch(j + n);
        args.stream.run_ahead(j + n);
      }
      for (std::int64_t i = 0; i < whole; i += kPair) {
#pragma GCC unroll 16
        for (int n = 0; n < kKeys; ++n) keys[n] = static_cast<const Element*>(args.k[j + n]) + i;
        score_step<Keys, kRows, kKeys>(acc, keys, q, i);
      }
    }
    if (whole < args.dim) {
      Tail<typename Keys::KeyRows> tail[kKeys];
      for (int n = 0; n < kKeys; ++n) {
        tail[n].fill(args.k[j + n], whole, args.dim);
        keys[n] = tail[n].element;
      }
      score_step<Keys, kRows, kKeys>(acc, keys, q, whole);
    }
    store_scores<kRows, kKeys>(acc, args.scores + j);
  }
}

/// Keys scored together with kRows rows, so that accumulators, keys and a query
/// stay in registers.
constexpr int keys_at_once(int rows) {
  if (kManyRegisters) return rows == 8 ? 2 : rows == 1 ? 8 : 4;
  return rows == 4 || rows == 2 ? 2 : 4;
}

/// Scores `rows` rows, as many at once as the registers hold.
template <class Keys>
HWY_ATTR void score(ScoreArgs args, std::int64_t rows) {
  while (rows > 0) {
    const int now = rows_at_once(rows);
    switch (now) {
      case 1: score_rows<Keys, 1, keys_at_once(1)>(args); break;
      case 2: score_rows<Keys, 2, keys_at_once(2)>(args); break;
      case 3: score_rows<Keys, 3, keys_at_once(3)>(args); break;
      case 4: score_rows<Keys, 4, keys_at_once(4)>(args); break;
      default: score_rows<Keys, kMostRows, keys_at_once(kMostRows)>(args); break;
    }
    rows -= now;
    args.q = static_cast<const char*>(args.q) + now * args.q_bytes;
    args.scores += now * kBlock;
    args.stream = {};
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace leanattn::cpu
HWY_AFTER_NAMESPACE();

#endif
