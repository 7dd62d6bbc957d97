#include "worker/control/agent_loss.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace headroom::agent_loss {
namespace {

constexpr unsigned kSecondsToSave = 30;

std::atomic<bool> is_lost = false;
std::atomic<int> reprieves = 0;
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

pid_t agent = 0;

// Launchers may send the same signal for reasons of their own.
void take(int) {
  if (getppid() == agent) return;
  is_lost = true;
  if (reprieves == 0) _exit(128 + SIGKILL);
  alarm(kSecondsToSave);  // of which the default action ends the process
}

}  // namespace

void install() {
  agent = getppid();
  struct sigaction action = {};
  action.sa_handler = take;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
}

bool has_happened() { return is_lost; }

Reprieve::Reprieve(bool is_given) : is_given_(is_given) {
  if (is_given_) ++reprieves;
}

Reprieve::~Reprieve() {
  if (is_given_) --reprieves;
}

}  // namespace headroom::agent_loss
