// MemoryCategory: what a thread's allocations are for.
//
// The counting allocator knows sizes, not purposes. Whoever knows the purpose
// says so for a scope; the innermost scope counts:
//
//   const MemoryCategoryScope scope(MemoryCategory::kLoss);
//
// Threads: each has its own; a new thread starts with kOther.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace headroom {

enum class MemoryCategory : uint8_t {
  kOther,          // images, what no scope claims
  kParameters,     // weights, running statistics
  kGradients,      // of weights: the step's, the accumulated
  kOptimizer,      // moments
  kAverage,        // EMA
  kActivations,    // maps between forward and backward, and their gradients
  kCommunication,  // buckets, gathered rows, halo rows, messages
  kLoss,           // label-dependent
  kWorkspace,      // a library's scratch during one call
};
inline constexpr size_t kNumMemoryCategories = 9;

// "activations".
const char* name_of(MemoryCategory category);

class MemoryCategoryScope {
 public:
  explicit MemoryCategoryScope(MemoryCategory category) : before_(here()) {
    here() = {category, category, {}};
  }
  ~MemoryCategoryScope() { here() = before_; }
  MemoryCategoryScope(const MemoryCategoryScope&) = delete;
  MemoryCategoryScope& operator=(const MemoryCategoryScope&) = delete;

  // Of an allocation of `bytes` by the calling thread.
  static MemoryCategory of(int64_t bytes) {
    const State& state = here();
    return state.category == state.of_results ||
                   std::ranges::find(state.results, bytes) ==
                       state.results.end()
               ? state.category
               : state.of_results;
  }

 protected:
  using Results = std::array<int64_t, 2>;  // bytes

  explicit MemoryCategoryScope(const Results& results) : before_(here()) {
    here() = {MemoryCategory::kWorkspace, before_.category, results};
  }

 private:
  struct State {
    MemoryCategory category = MemoryCategory::kOther;
    MemoryCategory of_results = MemoryCategory::kOther;
    Results results = {};
  };
  static State& here() {
    thread_local State state;
    return state;
  }

  const State before_;
};

// Around a library's call that allocates its results and its scratch alike:
// what has a result's size is one, in the category around; the rest is
// workspace.
class WorkspaceScope final : public MemoryCategoryScope {
 public:
  explicit WorkspaceScope(int64_t result_bytes, int64_t other_result_bytes = 0)
      : MemoryCategoryScope(Results{result_bytes, other_result_bytes}) {}
};

}  // namespace headroom
