#include "worker/control/agent_loss.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

namespace headroom::agent_loss {
namespace {

constexpr unsigned kSecondsToSave = 30;

std::atomic<bool> is_lost = false;
// Number of Reprieves with holds_all, which also count if the agent is killed.
std::atomic<int> reprieves = 0;
std::atomic<int> savers = 0;  // number of all Reprieves
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

pid_t agent = 0;

// Handles SIGUSR1. Checks the sender, because launchers may send it too.
void take(int, siginfo_t* about, void*) {
  // When the agent dies, the kernel's signal names the agent as sender. But
  // then the agent is no longer the parent of this process.
  const bool is_there = getppid() == agent;
  const bool is_asked =
      is_there && about->si_code == SI_USER && about->si_pid == agent;
  if (is_there && !is_asked) return;
  is_lost = true;
  if ((is_asked ? savers : reprieves) == 0) _exit(128 + SIGKILL);
  alarm(kSecondsToSave);  // the default action of SIGALRM ends the process
}

}  // namespace

void install() {
  agent = getppid();
  struct sigaction action = {};
  action.sa_sigaction = take;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
}

bool has_happened() { return is_lost; }

Reprieve::Reprieve(bool holds_all) : holds_all_(holds_all) {
  ++savers;
  if (holds_all_) ++reprieves;
}

Reprieve::~Reprieve() {
  --savers;
  if (holds_all_) --reprieves;
}

}  // namespace headroom::agent_loss
