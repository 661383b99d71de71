// Problems from a fuzzer's bytes: valid ones, and ways to spoil them that the library
// can see.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include "leanattn/attention.h"
#include "testing/random_case.h"

namespace leanattn::fuzz {

/// A small valid problem.
[[nodiscard]] testing::CaseSpec make_spec(FuzzedDataProvider& bytes);

/// Options, often valid.
[[nodiscard]] PlanOptions make_options(FuzzedDataProvider& bytes);

/// Any numbers at all.
[[nodiscard]] Problem make_problem(FuzzedDataProvider& bytes);

/// Changes one thing in `arguments`: a shape, stride, type or pointer, or the content
/// of lengths and tables. Only what keeps every element the views can reach inside the
/// memory it had: the library cannot know how large the caller's memory is.
void spoil(FuzzedDataProvider& bytes, testing::Case& problem, Arguments& arguments);

}  // namespace leanattn::fuzz
