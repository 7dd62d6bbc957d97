// agent_loss: handles the loss of a worker's agent: the agent was killed, or it
// asks the worker to leave because the coordinator does not answer.
//
// SIGUSR1 announces both cases. The system sends the signal when the agent dies
// (deploy/cli/process/child_process.h); in the other case the agent sends it.
// The worker then ends at once, as if it had been killed too. If a Reprieve
// exists, the worker first has 30 s to save the state that would be lost.
//
// Threads: call install() once, from main; the others from any thread.
#pragma once

namespace headroom::agent_loss {

void install();
bool has_happened();

// While a Reprieve exists, the worker gets time to save its state when the
// agent asks it to leave. If the agent is killed, it gets this time only if
// `holds_all`: the agent's workers together hold the whole state.
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
