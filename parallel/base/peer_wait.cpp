#include "parallel/base/peer_wait.h"

#include <atomic>

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<int> waiting{0};
std::atomic<Clock::rep> last_sign{Clock::now().time_since_epoch().count()};

}  // namespace

PeerWait::PeerWait() { ++waiting; }

PeerWait::~PeerWait() {
  sign_of_life();
  --waiting;
}

void PeerWait::sign_of_life() {
  last_sign = Clock::now().time_since_epoch().count();
}

std::chrono::milliseconds PeerWait::quiet() {
  if (waiting > 0) return std::chrono::milliseconds(0);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      Clock::now().time_since_epoch() - Clock::duration(last_sign));
}

}  // namespace headroom
