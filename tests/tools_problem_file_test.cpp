// Problems in files: the same keys and values in every layout give the same answer;
// what is missing, unknown or of the wrong kind is refused by name.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "answer.h"
#include "leanattn/attention.h"
#include "leanattn/error.h"
#include "problem_file.h"

namespace leanattn::tools {
namespace {

constexpr std::int64_t kBatch = 2, kKeys = 6, kHeads = 2, kDim = 3, kPage = 2;

// A file put together in memory.
class FileBuilder {
 public:
  template <class T>
  FileBuilder& add(const std::string& name, StoredType type, std::vector<std::int64_t> shape,
                   const std::vector<T>& values) {
    auto& bytes = bytes_[name];
    bytes.resize(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    tensors_[name] = {name, type, std::move(shape), nullptr,
                      static_cast<std::int64_t>(bytes.size())};
    return *this;
  }
  FileBuilder& drop(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }

  [[nodiscard]] ProblemFile problem(CacheOrder order = CacheOrder::kNhd) const {
    const std::string path = ::testing::TempDir() + "leanattn_problem_file_test.safetensors";
    std::vector<StoredTensor> list;
    for (const auto& [name, tensor] : tensors_) {
      list.push_back(tensor);
      list.back().data = bytes_.at(name).data();  // this builder's, if it is a copy
    }
    write_safetensors(path, list);
    return {Safetensors::read(path), order};
  }
  [[nodiscard]] std::string refusal(CacheOrder order = CacheOrder::kNhd) const {
    try {
      (void)problem(order);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

 private:
  std::map<std::string, std::vector<std::byte>> bytes_;
  std::map<std::string, StoredTensor> tensors_;
};

float value_at(std::int64_t b, std::int64_t key, std::int64_t head, std::int64_t d) {
  return static_cast<float>((b * 31 + key * 17 + head * 7 + d * 5) % 11) / 11.0f;
}

// The cache with `place(b, key, head, d)` as the index of each element.
template <class Place>
std::vector<float> cache(const Place& place) {
  std::vector<float> values(kBatch * kKeys * kHeads * kDim);
  for (std::int64_t b = 0; b < kBatch; ++b) {
    for (std::int64_t key = 0; key < kKeys; ++key) {
      for (std::int64_t head = 0; head < kHeads; ++head) {
        for (std::int64_t d = 0; d < kDim; ++d) {
          values[static_cast<std::size_t>(place(b, key, head, d))] = value_at(b, key, head, d);
        }
      }
    }
  }
  return values;
}

std::int64_t nhd(std::int64_t b, std::int64_t key, std::int64_t head, std::int64_t d) {
  return ((b * kKeys + key) * kHeads + head) * kDim + d;
}

// Page i of sequence b is page 2·i + b of the cache.
std::int64_t paged(std::int64_t b, std::int64_t key, std::int64_t head, std::int64_t d) {
  const std::int64_t page = 2 * (key / kPage) + b;
  return ((page * kPage + key % kPage) * kHeads + head) * kDim + d;
}

FileBuilder contiguous_file() {
  std::vector<float> q(kBatch * 2 * kHeads * kDim);
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(i % 5) - 2.0f;
  FileBuilder file;
  file.add("q", StoredType::kF32, {kBatch, 1, 2 * kHeads, kDim}, q);
  file.add("k", StoredType::kF32, {kBatch, kKeys, kHeads, kDim}, cache(nhd));
  file.add("v", StoredType::kF32, {kBatch, kKeys, kHeads, kDim}, cache(nhd));
  file.add("lengths", StoredType::kI32, {kBatch}, std::vector<std::int32_t>{5, 6});
  return file;
}

std::vector<double> answer_of(const ProblemFile& problem) {
  reference(problem.arguments());
  return read_answer(problem.arguments()).out;
}

TEST(ProblemFile, EveryLayoutGivesTheSameAnswer) {
  const std::vector<double> wanted = answer_of(contiguous_file().problem());
  ASSERT_EQ(wanted.size(), 24u);

  const auto hnd = [](std::int64_t b, std::int64_t key, std::int64_t head, std::int64_t d) {
    return ((b * kHeads + head) * kKeys + key) * kDim + d;
  };
  FileBuilder transposed = contiguous_file();
  transposed.add("k", StoredType::kF32, {kBatch, kHeads, kKeys, kDim}, cache(hnd));
  transposed.add("v", StoredType::kF32, {kBatch, kHeads, kKeys, kDim}, cache(hnd));
  EXPECT_EQ(answer_of(transposed.problem(CacheOrder::kHnd)), wanted);

  FileBuilder dense = contiguous_file();
  const std::vector<std::int64_t> pages{kBatch * kKeys / kPage, kPage, kHeads, kDim};
  dense.add("k", StoredType::kF32, pages, cache(paged));
  dense.add("v", StoredType::kF32, pages, cache(paged));
  FileBuilder csr = dense;
  dense.add("page_table", StoredType::kI64, {kBatch, 3},
            std::vector<std::int64_t>{0, 2, 4, 1, 3, 5});
  EXPECT_EQ(answer_of(dense.problem()), wanted);
  csr.add("page_ids", StoredType::kI32, {6}, std::vector<std::int32_t>{0, 2, 4, 1, 3, 5});
  csr.add("page_indptr", StoredType::kI32, {3}, std::vector<std::int32_t>{0, 3, 6});
  EXPECT_EQ(answer_of(csr.problem()), wanted);
}

TEST(ProblemFile, LengthsDefaultToTheCapacity) {
  FileBuilder file = contiguous_file();
  file.add("lengths", StoredType::kI32, {kBatch}, std::vector<std::int32_t>{6, 6});
  const std::vector<double> wanted = answer_of(file.problem());
  EXPECT_EQ(answer_of(file.drop("lengths").problem()), wanted);
}

TEST(ProblemFile, BroadcastsABias) {
  FileBuilder file = contiguous_file();
  file.add("bias", StoredType::kBool, {1, 1, 1, kKeys},
           std::vector<std::uint8_t>{1, 1, 1, 0, 0, 0});
  FileBuilder shorter = contiguous_file();
  shorter.add("lengths", StoredType::kI32, {kBatch}, std::vector<std::int32_t>{3, 3});
  EXPECT_EQ(answer_of(file.problem()), answer_of(shorter.problem()));
}

TEST(ProblemFile, RefusesByName) {
  const std::vector<float> one{1.0f};
  const std::vector<std::int32_t> two{0, 1};
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(contiguous_file().drop("q").refusal(), "no tensor 'q'");
  has(contiguous_file().add("sink", StoredType::kF32, {1}, one).refusal(),
      "'sink' would be ignored");
  has(contiguous_file().add("q", StoredType::kF32, {1}, one).refusal(), "'q' is F32 [1]; 4 dim");
  has(contiguous_file().add("sinks", StoredType::kI32, {2}, two).refusal(), "F32, F16 or BF16");
  has(contiguous_file().add("lengths", StoredType::kF32, {1}, one).refusal(), "I32 or I64");
  has(contiguous_file().add("page_ids", StoredType::kI32, {2}, two).refusal(), "'page_indptr'");
  has(contiguous_file()
          .add("page_ids", StoredType::kI32, {2}, two)
          .add("page_table", StoredType::kI32, {1, 2}, two)
          .refusal(),
      "both given");
  has(contiguous_file()
          .add("tree_mask", StoredType::kBool, {2, 1, 1}, std::vector<std::uint8_t>{1, 2})
          .refusal(),
      "bytes other than 0 and 1");
}

TEST(Answer, FindsTheWorstElementAndItsTolerance) {
  const ProblemFile problem = contiguous_file().problem();
  const Arguments& arguments = problem.arguments();
  const Answer wanted = exact_answer(arguments, {});
  const Answer tolerance =
      tolerance_of(arguments, {}, wanted, ElementType::kFloat32, largest_key_norm(arguments),
                   mean_magnitudes(arguments, {}));
  Answer got = wanted;
  EXPECT_EQ(compare(arguments, got, wanted, tolerance).share, 0);
  const std::size_t at = (1 * 4 + 2) * kDim + 1;  // sequence 1, head 2, dim 1
  got.out[at] += 0.5 * tolerance.out[at];
  EXPECT_TRUE(compare(arguments, got, wanted, tolerance).within);
  got.out[at] += tolerance.out[at];
  const Difference off = compare(arguments, got, wanted, tolerance);
  EXPECT_FALSE(off.within);
  EXPECT_NEAR(off.share, 1.5, 1e-6);
  EXPECT_EQ(off.worst.rfind("out at sequence 1, query 0, head 2, dim 1: ", 0), 0u) << off.worst;
  EXPECT_LT(tolerance.out[at], 1e-5);  // f32: a few roundings
  got.out[at] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(compare(arguments, got, wanted, tolerance).within);
}

}  // namespace
}  // namespace leanattn::tools
