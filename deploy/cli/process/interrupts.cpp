#include "deploy/cli/process/interrupts.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace headroom::interrupts {
namespace {

constexpr int64_t kOneRequestMs = 50;

std::atomic<int> received{0};
std::atomic<int> watches{0};
std::atomic<int64_t> counted_ms{-kOneRequestMs};
static_assert(std::atomic<int64_t>::is_always_lock_free);

// Async-signal-safe calls and atomics only.
void receive(int signal) {
  if (watches == 0) {
    std::signal(signal, SIG_DFL);
    raise(signal);  // delivered when this returns
    return;
  }
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t now_ms = int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  int64_t counted = counted_ms.load();
  if (now_ms - counted < kOneRequestMs) return;
  if (counted_ms.compare_exchange_strong(counted, now_ms)) ++received;
}

}  // namespace

void install() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = receive;
    action.sa_flags = SA_RESTART;
    sigaction(signal, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

int count() { return received.load(); }

Watch::Watch() { ++watches; }
Watch::~Watch() { --watches; }

}  // namespace headroom::interrupts
