#include "deploy/launch/interrupts.h"

#include <atomic>
#include <csignal>

namespace headroom::interrupts {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

void receive(int) { received.fetch_add(1, std::memory_order_relaxed); }

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

int count() { return received.load(std::memory_order_relaxed); }

}  // namespace headroom::interrupts
