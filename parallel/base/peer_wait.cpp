#include "parallel/base/peer_wait.h"

#include <atomic>
#include <ctime>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> waiting{0};
std::atomic<int> working{0};  // number of open LongWork scopes
constexpr std::chrono::seconds kNewsLast{5};
// When a peer was last reported as working; 0 if none is.
std::atomic<Clock::rep> peer_worked{0};
std::atomic<Clock::rep> last_sign{Clock::now().time_since_epoch().count()};

// The waits of one thread, which may be nested.
struct OwnWaits {
  int depth = 0;
  std::chrono::nanoseconds begin{0}, sum{0};
};
thread_local OwnWaits own;

std::chrono::nanoseconds time_of_this_thread() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) +
         std::chrono::nanoseconds(used.tv_nsec);
}

std::mutex mutex;

std::set<AbortableWait*>& waits() {
  static auto* const all = new std::set<AbortableWait*>;
  return *all;
}

}  // namespace

void PeerWait::begin() {
  ++waiting;
  if (own.depth++ == 0) own.begin = time_of_this_thread();
}

void PeerWait::end() {
  sign_of_life();
  if (own.depth > 0 && --own.depth == 0) {
    own.sum += time_of_this_thread() - own.begin;
  }
  --waiting;
}

void PeerWait::sign_of_life() {
  last_sign = Clock::now().time_since_epoch().count();
}

bool PeerWait::is_waiting() { return waiting > 0; }

PeerWait::ProcessorTime PeerWait::processor_time() {
  return {own.sum, time_of_this_thread()};
}

LongWork::LongWork() { ++working; }

LongWork::~LongWork() {
  PeerWait::sign_of_life();
  --working;
}

void PeerNews::note(bool a_peer_works) {
  peer_worked = a_peer_works ? Clock::now().time_since_epoch().count() : 0;
}

bool PeerNews::a_peer_works() {
  const Clock::rep at = peer_worked;
  return at != 0 &&
         Clock::now().time_since_epoch() - Clock::duration(at) < kNewsLast;
}

std::chrono::milliseconds PeerWait::quiet() {
  if (waiting > 0 || working > 0) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      Clock::now().time_since_epoch() - Clock::duration(last_sign));
}

AbortableWait::AbortableWait(std::function<void()> abort,
                             std::optional<std::chrono::milliseconds> limit)
    : abort_(std::move(abort)) {
  if (limit) {
    patience_.emplace(*limit, Clock::now());
    static std::once_flag begun;
    std::call_once(begun, [] { std::thread(&watch_limits).detach(); });
  }
  const std::lock_guard lock(mutex);
  waits().insert(this);
}

void AbortableWait::watch_limits() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const bool a_peer_works = PeerNews::a_peer_works();
    const std::lock_guard lock(mutex);
    for (AbortableWait* wait : waits()) {
      if (!wait->patience_ || wait->is_late_ ||
          !wait->patience_->is_over(Clock::now(), a_peer_works)) {
        continue;
      }
      wait->is_late_ = true;
      wait->abort_();
    }
  }
}

AbortableWait::~AbortableWait() {
  const std::lock_guard lock(mutex);
  waits().erase(this);
}

void AbortableWait::abort_all() {
  const std::lock_guard lock(mutex);
  for (AbortableWait* wait : waits()) wait->abort_();
}

}  // namespace headroom
