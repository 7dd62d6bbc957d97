#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/host_cuda/cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace headroom::host_cuda {
namespace {

constexpr size_t kStackBytes = size_t{1} << 17;

// A stack on which the threads of a block run, one after another.
//
// ucontext starts a fiber. After that, _setjmp and _longjmp switch without a
// system call. Under a sanitizer, which must be notified of each switch,
// swapcontext switches.
class Fiber {
 public:
  Fiber() : stack_(new char[kStackBytes]) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = kStackBytes;
    context_.uc_link = nullptr;
    makecontext(&context_, &Fiber::start, 0);
#ifdef __SANITIZE_THREAD__
    tsan_ = __tsan_create_fiber(0);
#endif
  }
#ifdef __SANITIZE_THREAD__
  ~Fiber() { __tsan_destroy_fiber(tsan_); }
#endif
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Continues `work`, or begins it. Returns true if `work` has ended.
  bool run(const std::function<void()>& work);
  // Called from inside of `work`: returns to the caller of run().
  void leave();

 private:
  static void start();
  void loop();
  void switch_back();

  const std::unique_ptr<char[]> stack_;
  ucontext_t context_, caller_;
  const std::function<void()>* work_ = nullptr;
  bool is_inside_ = false;  // inside of work
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack_ = nullptr;
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
#elif defined(__SANITIZE_THREAD__)
  void* tsan_ = nullptr;
  void* tsan_caller_ = nullptr;
#else
  bool is_started_ = false;
  jmp_buf here_, there_;
#endif
};

thread_local Fiber* entered = nullptr;

void Fiber::start() { entered->loop(); }

void Fiber::loop() {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &caller_stack_, &caller_bytes_);
#endif
  while (true) {
    (*work_)();
    is_inside_ = false;
    switch_back();
  }
}

bool Fiber::run(const std::function<void()>& work) {
  work_ = &work;
  is_inside_ = true;
  entered = this;
#if defined(__SANITIZE_ADDRESS__)
  void* own_fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&own_fake_stack, stack_.get(), kStackBytes);
  swapcontext(&caller_, &context_);
  __sanitizer_finish_switch_fiber(own_fake_stack, nullptr, nullptr);
#elif defined(__SANITIZE_THREAD__)
  tsan_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, 0);
  swapcontext(&caller_, &context_);
#else
  if (_setjmp(there_) == 0) {
    if (is_started_) _longjmp(here_, 1);
    is_started_ = true;
    setcontext(&context_);
  }
#endif
  return !is_inside_;
}

void Fiber::switch_back() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&fake_stack_, caller_stack_, caller_bytes_);
  swapcontext(&context_, &caller_);
  __sanitizer_finish_switch_fiber(fake_stack_, &caller_stack_, &caller_bytes_);
#elif defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan_caller_, 0);
  swapcontext(&context_, &caller_);
#else
  if (_setjmp(here_) == 0) _longjmp(there_, 1);
#endif
}

void Fiber::leave() { switch_back(); }

enum class State { kRuns, kInBarrier, kInShuffle, kEnded };

struct Thread {
  dim3 place;
  State state = State::kRuns;
  std::unique_ptr<Fiber> fiber;
  unsigned shuffles = 0;  // number so far
};

struct Warp {
  unsigned size = 0;
  unsigned arrived = 0;  // lanes that have reached the current shuffle
  // The values of the current shuffle and of the one before, which slow lanes
  // still read.
  uint64_t values[2][kWarpSize] = {};
};

// The block that the calling thread runs.
class Block {
 public:
  void run(const dim3& shape, const std::function<void()>& kernel) {
    const unsigned count = shape.x * shape.y * shape.z;
    threads_.resize(count);
    warps_.assign((count + kWarpSize - 1) / kWarpSize, Warp());
    unsigned i = 0;
    for (unsigned z = 0; z < shape.z; ++z) {
      for (unsigned y = 0; y < shape.y; ++y) {
        for (unsigned x = 0; x < shape.x; ++x, ++i) {
          threads_[i].place = {x, y, z};
          threads_[i].state = State::kRuns;
          threads_[i].shuffles = 0;
          ++warps_[i / kWarpSize].size;
        }
      }
    }
    left_ = count;
    in_barrier_ = 0;
    while (left_ > 0) {
      bool ran = false;
      for (own_ = 0; own_ < count; ++own_) {
        if (threads_[own_].state != State::kRuns) continue;
        ran = true;
        resume(kernel);
      }
      if (!ran) {
        threads_.clear();
        throw std::logic_error(
            "threads of a block wait for one another in different places");
      }
    }
  }

  void wait() {
    threads_[own_].state = State::kInBarrier;
    ++in_barrier_;
    end_barrier_if_all_are_here();
    if (threads_[own_].state == State::kInBarrier)
      threads_[own_].fiber->leave();
  }

  uint64_t exchange(uint64_t value, unsigned lane) {
    Thread& own = threads_[own_];
    Warp& warp = warps_[own_ / kWarpSize];
    uint64_t* const values = warp.values[own.shuffles++ % 2];
    values[own_lane()] = value;
    if (++warp.arrived < warp.size) {
      own.state = State::kInShuffle;
      own.fiber->leave();
    } else {
      warp.arrived = 0;
      const size_t first = own_ / kWarpSize * kWarpSize;
      for (size_t i = first; i < first + warp.size; ++i) {
        if (threads_[i].state == State::kInShuffle) {
          threads_[i].state = State::kRuns;
        }
      }
    }
    return values[lane];
  }

  unsigned own_lane() const { return static_cast<unsigned>(own_ % kWarpSize); }

 private:
  void resume(const std::function<void()>& kernel) {
    Thread& thread = threads_[own_];
    threadIdx = thread.place;
    if (thread.fiber == nullptr) {
      if (idle_.empty()) idle_.push_back(std::make_unique<Fiber>());
      thread.fiber = std::move(idle_.back());
      idle_.pop_back();
    }
    if (!thread.fiber->run(kernel)) return;
    thread.state = State::kEnded;
    --left_;
    idle_.push_back(std::move(thread.fiber));
    end_barrier_if_all_are_here();
  }

  void end_barrier_if_all_are_here() {
    if (in_barrier_ == 0 || in_barrier_ < left_) return;
    in_barrier_ = 0;
    for (Thread& thread : threads_) {
      if (thread.state == State::kInBarrier) thread.state = State::kRuns;
    }
  }

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Fiber>> idle_;
  size_t own_ = 0;
  size_t left_ = 0;
  size_t in_barrier_ = 0;
};

thread_local Block block_under_way;

}  // namespace

void run_grid(const dim3& grid, const dim3& block,
              const std::function<void()>& kernel) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || grid.x == 0 || grid.y == 0 ||
      grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    throw std::logic_error("a grid of " + std::to_string(grid.x) + " x " +
                           std::to_string(grid.y) + " x " +
                           std::to_string(grid.z) + " blocks of " +
                           std::to_string(threads) + " threads");
  }
#ifdef __SANITIZE_ADDRESS__
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
#endif
  gridDim = grid;
  blockDim = block;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z) {
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y) {
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) {
        block_under_way.run(block, kernel);
      }
    }
  }
}

void wait_for_block() { block_under_way.wait(); }

uint64_t exchange_in_warp(uint64_t value, unsigned lane) {
  return block_under_way.exchange(value, lane);
}

unsigned own_lane() { return block_under_way.own_lane(); }

}  // namespace headroom::host_cuda
