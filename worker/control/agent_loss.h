// agent_loss: what becomes of a worker whose agent is killed.
//
// The system tells it by SIGUSR1 (deploy/cli/process/child_process.h). It ends
// at once, as if it had been killed too, unless it was given a reprieve: then
// it has 30 s to save what would be lost with it.
//
// Threads: install() once, from main; the others from any thread.
#pragma once

namespace headroom::agent_loss {

void install();
bool has_happened();

// While one lives that `is_given`, there is something to save.
class Reprieve {
 public:
  explicit Reprieve(bool is_given);
  ~Reprieve();
  Reprieve(const Reprieve&) = delete;
  Reprieve& operator=(const Reprieve&) = delete;

 private:
  const bool is_given_;
};

}  // namespace headroom::agent_loss
