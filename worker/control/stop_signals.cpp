#include "worker/control/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "parallel/base/check.h"

namespace headroom::stop_signals {
namespace {

constexpr int64_t kOneRequestNanoseconds = 300'000'000;

// Time of the first signal on the steady clock; 0 if there was none.
std::atomic<int64_t> first_at{0};
static_assert(std::atomic<int64_t>::is_always_lock_free);

int64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // allowed in a signal handler
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void take(int) {
  const int64_t now = nanoseconds();
  int64_t none = 0;
  if (first_at.compare_exchange_strong(none, now)) return;
  if (now - none < kOneRequestNanoseconds) return;
  _exit(static_cast<int>(ExitCode::kInterrupted));
}

}  // namespace

void install() {
  struct sigaction action = {};
  action.sa_handler = take;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    sigaction(number, nullptr, &before);
    // Under nohup the signal stays ignored.
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

bool requested() { return first_at != 0; }

}  // namespace headroom::stop_signals
