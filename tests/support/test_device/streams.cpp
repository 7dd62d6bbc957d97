#include "tests/support/test_device/streams.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/test_device/device_pages.h"
#include "tests/support/test_device/stream_handle.h"

namespace headroom {
namespace {

using StreamClock = std::chrono::steady_clock;

thread_local std::map<c10::DeviceIndex, int64_t> current_ids;
thread_local bool is_executor = false;

// CUDA's error number and text after a kernel has trapped.
constexpr int kTrapped = 719;
constexpr const char* kTrapText =
    "CUDA error: unspecified launch failure (cudaErrorLaunchFailure)";

struct Item {
  std::function<void()> work;
  StreamClock::time_point given;
  bool is_kernel = false;
};

struct Queue {
  TestStreamHandle handle = {};
  std::deque<Item> waiting;
  int64_t kernels = 0;  // among the waiting items
  int64_t given = 0, done = 0;
  int64_t wanted = 0;  // the number of threads that wait
  bool is_running = false;
  std::condition_variable more;
};

using Key = std::pair<c10::DeviceIndex, int64_t>;

}  // namespace

struct TestStreams::State {
  mutable std::mutex mutex;
  std::condition_variable progress;
  // Guarded by mutex, as all members below.
  std::map<Key, std::unique_ptr<Queue>> queues;
  std::exception_ptr failure;
  std::set<c10::DeviceIndex> broken;
  int64_t last_id = 0;
  int64_t delayed = 0;
  bool is_ending = false;

  Queue& queue(const Key& key) {
    std::unique_ptr<Queue>& queue = queues[key];
    if (queue == nullptr) {
      queue = std::make_unique<Queue>();
      queue->handle = {key.first, key.second, &State::give_to, &State::reach};
      std::thread([this, &of = *queue] { execute(of); }).detach();
    }
    return *queue;
  }

  static void give_to(const TestStreamHandle* handle, void (*work)(void*),
                      void* context) {
    instance().give(
        c10::Stream(c10::Stream::UNSAFE,
                    c10::Device(c10::DeviceType::PrivateUse1,
                                static_cast<c10::DeviceIndex>(handle->device)),
                    handle->stream),
        [work, context] { work(context); });
  }
  static void* reach(const void* address) {
    return DevicePages::instance().host_view(address);
  }

  void execute(Queue& queue) {
    is_executor = true;
    const activations::CountingAllocator::HostMemory not_counted;
    std::unique_lock lock(mutex);
    for (;;) {
      while (queue.waiting.empty() || is_ending) queue.more.wait(lock);
      const auto due = queue.waiting.front().given + kLaziness;
      while (queue.wanted <= queue.done && StreamClock::now() < due) {
        queue.more.wait_until(lock, due);
      }
      if (is_ending) continue;
      Item item = std::move(queue.waiting.front());
      queue.waiting.pop_front();
      queue.is_running = true;
      const bool is_broken = broken.contains(queue.handle.device);
      lock.unlock();
      try {
        if (!is_broken) item.work();
      } catch (...) {
        const std::lock_guard again(mutex);
        if (!failure) failure = std::current_exception();
      }
      item.work = nullptr;
      lock.lock();
      queue.is_running = false;
      if (item.is_kernel) --queue.kernels;
      ++queue.done;
      progress.notify_all();
    }
  }

  void await(std::unique_lock<std::mutex>& lock, const Moment& moment) {
    Queue& queue = this->queue({moment.device, moment.stream});
    if (queue.wanted < moment.count) {
      queue.wanted = moment.count;
      queue.more.notify_all();
    }
    // Work on a broken device never ends, so there is nothing to wait for.
    while (queue.done < moment.count && !broken.contains(moment.device)) {
      progress.wait(lock);
    }
  }

  void refuse_broken(c10::DeviceIndex device) const {
    if (!broken.contains(device)) return;
    throw c10::AcceleratorError(
        {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, kTrapped,
        kTrapText);
  }

  void give(const c10::Stream& stream, std::function<void()> work,
            bool is_kernel) {
    std::unique_lock lock(mutex);
    Queue& queue = this->queue({stream.device_index(), stream.id()});
    if (is_kernel && !is_executor && queue.kernels >= kMostWaiting) {
      await(lock, {stream.device_index(), stream.id(), queue.done + 1});
    }
    queue.waiting.push_back({std::move(work), StreamClock::now(), is_kernel});
    ++queue.given;
    if (is_kernel) {
      ++queue.kernels;
      if (stream.id() != 0) ++delayed;
    }
    queue.more.notify_all();
  }

  // When the process ends, work that has not begun is dropped.
  void end() {
    std::unique_lock lock(mutex);
    is_ending = true;
    const auto limit = StreamClock::now() + std::chrono::seconds(2);
    const auto is_idle = [this] {
      return std::ranges::none_of(
          queues, [](const auto& entry) { return entry.second->is_running; });
    };
    while (!is_idle() && StreamClock::now() < limit) {
      progress.wait_until(lock, limit);
    }
  }
};

TestStreams& TestStreams::instance() {
  struct Owner {
    TestStreams streams;
    ~Owner() { streams.state_->end(); }
  };
  static Owner owner;
  return owner.streams;
}

TestStreams::TestStreams() : state_(new State) {}

c10::Stream TestStreams::current(c10::Device device) const {
  return c10::Stream(c10::Stream::UNSAFE, device, current_ids[device.index()]);
}

c10::Stream TestStreams::exchange(c10::Stream stream) const {
  return c10::Stream(
      c10::Stream::UNSAFE, stream.device(),
      std::exchange(current_ids[stream.device_index()], stream.id()));
}

c10::Stream TestStreams::make(c10::Device device) {
  const std::lock_guard lock(state_->mutex);
  return c10::Stream(c10::Stream::UNSAFE, device, ++state_->last_id);
}

void* TestStreams::native_handle(const c10::Stream& stream) {
  const std::lock_guard lock(state_->mutex);
  return &state_->queue({stream.device_index(), stream.id()}).handle;
}

void TestStreams::give(const c10::Stream& stream, std::function<void()> work) {
  state_->give(stream, std::move(work), /*is_kernel=*/true);
}

void TestStreams::give_quietly(const c10::Stream& stream,
                               std::function<void()> work) {
  state_->give(stream, std::move(work), /*is_kernel=*/false);
}

void TestStreams::break_on(const c10::Stream& stream) {
  give(stream, [this, device = stream.device_index()] {
    const std::lock_guard lock(state_->mutex);
    state_->broken.insert(device);
  });
}

std::optional<std::string> TestStreams::failure(c10::DeviceIndex device) const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->broken.contains(device)) return std::nullopt;
  return kTrapText;
}

TestStreams::Moment TestStreams::moment(const c10::Stream& stream) const {
  const std::lock_guard lock(state_->mutex);
  return {stream.device_index(), stream.id(),
          state_->queue({stream.device_index(), stream.id()}).given};
}

void TestStreams::wait(const c10::Stream& stream, const Moment& moment) {
  if (stream.id() == moment.stream && stream.device_index() == moment.device) {
    return;  // within a stream, work is in order anyway
  }
  give_quietly(stream, [this, moment] {
    std::unique_lock lock(state_->mutex);
    state_->await(lock, moment);
  });
}

// A query counts as a wait: it makes queued work begin.
bool TestStreams::is_past(const Moment& moment) const {
  const std::lock_guard lock(state_->mutex);
  state_->refuse_broken(moment.device);
  Queue& queue = state_->queue({moment.device, moment.stream});
  if (queue.done >= moment.count) return true;
  if (queue.wanted < moment.count) {
    queue.wanted = moment.count;
    queue.more.notify_all();
  }
  return false;
}

void TestStreams::finish(const Moment& moment) {
  std::unique_lock lock(state_->mutex);
  state_->await(lock, moment);
  state_->refuse_broken(moment.device);
  if (state_->failure) std::rethrow_exception(state_->failure);
}

void TestStreams::finish_device(c10::DeviceIndex device) {
  std::vector<Moment> moments;
  {
    const std::lock_guard lock(state_->mutex);
    for (const auto& [key, queue] : state_->queues) {
      if (key.first == device) {
        moments.push_back({key.first, key.second, queue->given});
      }
    }
  }
  for (const Moment& moment : moments) finish(moment);
}

int64_t TestStreams::delayed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->delayed;
}

}  // namespace headroom
