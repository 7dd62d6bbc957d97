// agent_loss: handles the loss of a worker's agent: the agent was killed, or it
// asks the worker to leave because the coordinator does not answer.
//
// SIGUSR1 announces both. The system sends it when the agent dies
// (deploy/cli/process/child_process.h); else the agent sends it. The worker
// then ends at once, as if it had been killed too. If a Reprieve exists, it
// first has 30 s to save what would be lost.
//
// Threads: install() once, from main; the others from any thread.
#pragma once

namespace headroom::agent_loss {

void install();
bool has_happened();

// While a Reprieve exists, the worker has something to save when the agent asks
// it to leave. `holds_all` means that the agent's workers hold the whole state;
// only then does it also count when the agent is killed.
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
