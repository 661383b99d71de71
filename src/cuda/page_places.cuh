// Where the keys of a paged cache lie. While keys are read at the memory's full rate, a load of
// the page table takes as long as the copies ahead of it: microseconds, in which a warp copies
// many chunks. So it looks a whole batch of them ahead.
#pragma once

#include "cuda/key_rows.cuh"

namespace leanattn::cuda {

/// The places of the chunks of 16 keys of a segment that one warp copies; with a whole warp.
/// Where a chunk lies in one page, each lane knows a chunk's; where every key may have a page of
/// its own, each lane knows a key's of every two chunks. kAhead chunks are looked up ahead then.
template <int kAhead>
class PagePlaces {
 public:
  __device__ PagePlaces(const Call& call, const Segment& segment)
      : call_(call),
        one_page_(call.page_size.value() % kChunk == 0),
        keys_(segment.keys),
        table_(page_table_row(call, segment)) {}

  /// Whether a chunk lies in one page.
  [[nodiscard]] __device__ bool one_page() const { return one_page_; }

  /// To be called for n = 0, 1, …, before the n-th chunk of the segment, which begins at
  /// key_of(n), is asked for.
  template <class KeyOf>
  __device__ void look_up(const KeyOf& key_of, int n) {
    if (one_page_) {
      look_up_chunks(key_of, n);
    } else if (n % 2u == 0) {
      look_up_keys(key_of, n);
    }
  }

  /// Where the n-th chunk begins, if it lies in one page.
  [[nodiscard]] __device__ KeyPieces pieces(int n) const {
    return {shuffle(pieces_.k, n), shuffle(pieces_.v, n)};
  }
  /// Else where its key `row` lies.
  [[nodiscard]] __device__ KeyPieces pieces(int n, int row) const {
    const int lane = n % 2u * kChunk + row;
    return {shuffle(pieces_.k, lane), shuffle(pieces_.v, lane)};
  }
  /// The page of this lane's key of the n-th chunk.
  [[nodiscard]] __device__ int page(int n) const {
    return shuffle(page_, one_page_ ? n : n % 2u * kChunk + lane_id() % kChunk);
  }

 private:
  static constexpr int kPairs = kAhead / 2;  // of chunks: one page a lane

  /// Every 32nd time takes the pages of 32 chunks; those of the next are loaded a chunk later,
  /// so that the segment's first does not wait for it.
  template <class KeyOf>
  __device__ void look_up_chunks(const KeyOf& key_of, int n) {
    const auto key = [&](int of) { return nearest_of(keys_, key_of(of + lane_id())); };
    if (n % unsigned{kLanes} == 1) {
      next_[0] = load_page(key(n - 1 + kLanes));
    } else if (n % unsigned{kLanes} == 0) {
      take(n == 0 ? load_page(key(0)) : next_[0], key(n));
    }
  }

  /// Takes the pages of two chunks, and loads those of kAhead at once, as many ahead.
  template <class KeyOf>
  __device__ void look_up_keys(const KeyOf& key_of, int n) {
    const auto key = [&](int of) {
      return nearest_of(keys_, key_of(of + lane_id() / kChunk) + lane_id() % kChunk);
    };
    const auto load = [&](int of) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        if (key_of(of + 2 * i) >= keys_.end) break;
        next_[i] = load_page(key(of + 2 * i));
      }
    };
    const int nth = n % unsigned{kAhead} / 2u;
    if (nth == 0) {
      if (n == 0) load(0);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) now_[i] = next_[i];
      load(n + kAhead);
    }
    int page = now_[0];
#pragma unroll
    for (int i = 1; i < kPairs; ++i) page = i == nth ? now_[i] : page;
    take(page, key(n));
  }

  /// The page of this lane's `key`.
  __device__ void take(int page, int key) {
    const int slot = key % call_.page_size;
    const auto piece = [&](const CacheTensor& cache) {
      constexpr int kElements = KeyPieces::kBytes / 2;
      return static_cast<unsigned>(page) * static_cast<unsigned>(cache.page_stride / kElements) +
             static_cast<unsigned>(slot) * static_cast<unsigned>(cache.slot_stride / kElements);
    };
    page_ = page;
    pieces_ = {piece(call_.k), piece(call_.v)};
  }

  [[nodiscard]] __device__ int load_page(int key) const {
    return load_index(call_.page_table, table_ + key / call_.page_size);
  }

  const Call& call_;
  bool one_page_;
  Range32 keys_;           // of the segment
  std::int64_t table_;     // entries before the sequence's first page
  int now_[kPairs] = {};   // pages of the kAhead chunks that are being copied
  int next_[kPairs] = {};  // and of the next
  int page_ = 0;           // of this lane's chunk or key
  KeyPieces pieces_;       // and where that begins
};

}  // namespace leanattn::cuda
