// MemoryCategory: what a thread's allocations are for.
//
// The counting allocator knows sizes, not purposes. Whoever knows the purpose
// says so for a scope; the innermost scope counts:
//
//   const MemoryCategoryScope scope(MemoryCategory::kLoss);
//
// Each thread has its own; a new one starts with kOther.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace headroom {

enum class MemoryCategory : uint8_t {
  kOther,          // images, what no scope claims
  kParameters,     // weights, running statistics
  kGradients,      // the step's and the accumulated ones
  kOptimizer,      // moments
  kAverage,        // EMA
  kActivations,    // maps between forward and backward, and their gradients
  kCommunication,  // buckets, gathered layers, halo rows, messages
  kLoss,           // label-dependent
  kWorkspace,      // a library's scratch during one call
};
inline constexpr size_t kNumMemoryCategories = 9;

inline const char* name_of(MemoryCategory category) {
  static constexpr std::array<const char*, kNumMemoryCategories> kNames = {
      "other",       "parameters",    "gradients", "optimizer", "average",
      "activations", "communication", "loss",      "workspace"};
  return kNames.at(static_cast<size_t>(category));
}

class MemoryCategoryScope {
 public:
  explicit MemoryCategoryScope(MemoryCategory category) : before_(here()) {
    here() = {category, category, {}};
  }
  ~MemoryCategoryScope() { here() = before_; }
  MemoryCategoryScope(const MemoryCategoryScope&) = delete;
  MemoryCategoryScope& operator=(const MemoryCategoryScope&) = delete;

  // The category of an allocation of `bytes` by the calling thread.
  static MemoryCategory of(int64_t bytes) {
    const State& state = here();
    return state.category == state.of_results ||
                   std::ranges::find(state.results, bytes) ==
                       state.results.end()
               ? state.category
               : state.of_results;
  }
  // The same for an allocation of a device's memory. It is asked once for each,
  // as WorkspaceScope::workspace_bytes() counts them.
  static MemoryCategory of_device(int64_t bytes) {
    const MemoryCategory category = of(bytes);
    State& state = here();
    if (category != state.of_results) {
      state.scratch += bytes;
      state.most_scratch = std::max(state.most_scratch, state.scratch);
      return category;
    }
    if (!state.has_result) state.held = state.scratch;
    state.has_result = true;
    state.scratch = state.held;
    return category;
  }

 protected:
  using Results = std::array<int64_t, 2>;  // bytes

  explicit MemoryCategoryScope(const Results& results) : before_(here()) {
    here() = {MemoryCategory::kWorkspace, before_.category, results};
  }
  static int64_t most_scratch() { return here().most_scratch; }

 private:
  struct State {
    MemoryCategory category = MemoryCategory::kOther;
    MemoryCategory of_results = MemoryCategory::kOther;
    Results results = {};
    // Bytes of no result: asked for before the first one, which may live as
    // long as the call; these and what came since the newest one.
    int64_t held = 0, scratch = 0, most_scratch = 0;
    bool has_result = false;
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

  // The most bytes of a device's workspace between two results so far.
  // REQUIRES: no scope inside this one is open.
  int64_t workspace_bytes() const { return most_scratch(); }
};

// OutsideMemory: memory of tensors that does not come from the tensors'
// allocator, and counts all the same.
//
// Whoever counts tensors' bytes in this process installs a counter, before
// there are other threads; whoever provides such memory asks for a token and
// keeps it as long as the memory. Without a counter a token is empty.

class OutsideMemory {
 public:
  // The bytes count until the token is gone. May throw what an allocator
  // throws when there is no room.
  using Counter = std::shared_ptr<void> (*)(int64_t bytes);

  static void set_counter(Counter counter) { installed() = counter; }
  static std::shared_ptr<void> count(int64_t bytes) {
    return installed() == nullptr ? nullptr : installed()(bytes);
  }

 private:
  static Counter& installed() {
    static Counter counter = nullptr;
    return counter;
  }
};

}  // namespace headroom
