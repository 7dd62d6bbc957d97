// agent_loss: what becomes of a worker whose agent is killed, or that its agent
// asks to leave, because the coordinator is silent.
//
// SIGUSR1 says both: the system sends it (deploy/cli/process/child_process.h),
// or the agent does. The worker ends at once, as if it had been killed too,
// unless it was given a reprieve: then it has 30 s to save what would be lost
// with it.
//
// Threads: install() once, from main; the others from any thread.
#pragma once

namespace headroom::agent_loss {

void install();
bool has_happened();

// A reprieve that lives says that there is something to save when the agent
// asks; when the agent is killed only if its workers hold all of the state.
class Reprieve {
 public:
  explicit Reprieve(bool holds_all);
  ~Reprieve();
  Reprieve(const Reprieve&) = delete;
  Reprieve& operator=(const Reprieve&) = delete;

 private:
  const bool holds_all_;
};

}  // namespace headroom::agent_loss
