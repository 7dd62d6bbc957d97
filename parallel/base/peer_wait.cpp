#include "parallel/base/peer_wait.h"

#include <atomic>
#include <mutex>
#include <set>
#include <utility>

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> waiting{0};
std::atomic<int> working{0};  // LongWork under way
constexpr std::chrono::seconds kNewsLast{5};
std::atomic<Clock::rep> peer_worked{0};  // the time of the news
std::atomic<Clock::rep> last_sign{Clock::now().time_since_epoch().count()};

std::mutex mutex;

std::set<const AbortableWait*>& waits() {
  static auto* const all = new std::set<const AbortableWait*>;
  return *all;
}

}  // namespace

void PeerWait::begin() { ++waiting; }

void PeerWait::end() {
  sign_of_life();
  --waiting;
}

void PeerWait::sign_of_life() {
  last_sign = Clock::now().time_since_epoch().count();
}

bool PeerWait::is_waiting() { return waiting > 0; }

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

AbortableWait::AbortableWait(std::function<void()> abort)
    : abort_(std::move(abort)) {
  const std::lock_guard lock(mutex);
  waits().insert(this);
}

AbortableWait::~AbortableWait() {
  const std::lock_guard lock(mutex);
  waits().erase(this);
}

void AbortableWait::abort_all() {
  const std::lock_guard lock(mutex);
  for (const AbortableWait* wait : waits()) wait->abort_();
}

}  // namespace headroom
