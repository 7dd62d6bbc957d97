#include "tests/support/test_device/streams.h"

#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace headroom {
namespace {

thread_local int64_t current_id = 0;

struct Queue {
  std::deque<std::function<void()>> waiting;
  int64_t done = 0;

  int64_t given() const { return done + static_cast<int64_t>(waiting.size()); }
};

}  // namespace

struct TestStreams::State {
  // Held while work is done: work of one stream may wait for another's.
  mutable std::recursive_mutex mutex;
  std::map<int64_t, Queue> queues;
  int64_t last_id = 0;
  int64_t delayed = 0;
};

TestStreams& TestStreams::instance() {
  static TestStreams streams;
  return streams;
}

TestStreams::TestStreams() : state_(new State) {}

c10::Stream TestStreams::current(c10::Device device) const {
  return c10::Stream(c10::Stream::UNSAFE, device, current_id);
}

c10::Stream TestStreams::exchange(c10::Stream stream) const {
  return c10::Stream(c10::Stream::UNSAFE, stream.device(),
                     std::exchange(current_id, stream.id()));
}

c10::Stream TestStreams::make(c10::Device device) {
  const std::lock_guard lock(state_->mutex);
  return c10::Stream(c10::Stream::UNSAFE, device, ++state_->last_id);
}

void TestStreams::give(const c10::Stream& stream, std::function<void()> work) {
  if (stream.id() == 0) return work();
  const std::lock_guard lock(state_->mutex);
  state_->queues[stream.id()].waiting.push_back(std::move(work));
  ++state_->delayed;
}

TestStreams::Moment TestStreams::moment(const c10::Stream& stream) const {
  const std::lock_guard lock(state_->mutex);
  return {stream.id(), state_->queues[stream.id()].given()};
}

void TestStreams::wait(const c10::Stream& stream, const Moment& moment) {
  if (stream.id() == 0) return finish(moment);
  if (moment.stream == 0) return;  // it has been done
  give(stream, [this, moment] { finish(moment); });
}

void TestStreams::finish(const Moment& moment) {
  const std::lock_guard lock(state_->mutex);
  Queue& queue = state_->queues[moment.stream];
  while (queue.done < moment.count) {
    const std::function<void()> work = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    ++queue.done;
    work();
  }
}

bool TestStreams::is_past(const Moment& moment) const {
  const std::lock_guard lock(state_->mutex);
  return state_->queues[moment.stream].done >= moment.count;
}

int64_t TestStreams::delayed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->delayed;
}

}  // namespace headroom
