// MemoryCategory: the purpose of a thread's allocations.
//
// The counting allocator gets sizes without a purpose, so the code that
// allocates opens a scope; the innermost scope decides the category:
//
//   const MemoryCategoryScope scope(MemoryCategory::kLoss);
//
// The category is per thread; a new thread starts with kOther.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace headroom {

enum class MemoryCategory : uint8_t {
  kOther,          // images, and allocations outside any scope
  kParameters,     // weights, running statistics
  kGradients,      // gradients of the step, accumulated gradients
  kOptimizer,      // moments
  kAverage,        // EMA
  kActivations,    // maps between forward and backward, and their gradients
  kCommunication,  // buckets, gathered layers, halo rows, messages
  kLoss,           // tensors whose size depends on the labels
  kWorkspace,      // scratch memory of one library call
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

  // Returns the category of an allocation of `bytes` by the calling thread.
  static MemoryCategory of(int64_t bytes) {
    const State& state = here();
    return state.category == state.of_results ||
                   std::ranges::find(state.results, bytes) ==
                       state.results.end()
               ? state.category
               : state.of_results;
  }
  // Like of(), for an allocation of device memory. Call it exactly once per
  // allocation: WorkspaceScope::workspace_bytes() counts these calls.
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
    // Bytes that are not results. `held`: allocated before the first result,
    // and perhaps alive until the end of the call. `scratch`: `held` plus the
    // allocations since the latest result.
    int64_t held = 0, scratch = 0, most_scratch = 0;
    bool has_result = false;
  };
  static State& here() {
    thread_local State state;
    return state;
  }

  const State before_;
};

// Scope around a library call that allocates both its results and scratch
// memory. An allocation that has the size of a result gets the enclosing
// category; any other is workspace. A scratch buffer that happens to have a
// result's size is therefore counted as a result.
class WorkspaceScope final : public MemoryCategoryScope {
 public:
  explicit WorkspaceScope(int64_t result_bytes, int64_t other_result_bytes = 0)
      : MemoryCategoryScope(Results{result_bytes, other_result_bytes}) {}

  // The largest value so far of this sum: workspace bytes allocated on a device
  // before the first result, plus those allocated since the latest result.
  // REQUIRES: no scope inside this one is open.
  int64_t workspace_bytes() const { return most_scratch(); }
};

// OutsideMemory: counts memory of tensors that does not come from the tensor
// allocator but must be counted with it.
//
// The code that counts tensor bytes in this process installs a counter before
// other threads start. Code that provides such memory gets a token by count()
// and keeps the token as long as the memory. Without a counter the token is
// empty.

class OutsideMemory {
 public:
  // Counts the bytes until the token is destroyed. May throw as an allocator
  // does if there is no room.
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
