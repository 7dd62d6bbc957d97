#include "worker/control/agent_loss.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace headroom::agent_loss {
namespace {

// A worker that has a state to save. It writes "i" if it ignores the signal,
// because its agent is alive, and "l" when it has detected that the agent
// ended.
void be_worker(int output, int to_agent) {
  prctl(PR_SET_PDEATHSIG, SIGUSR1);
  install();
  const Reprieve reprieve(true);
  raise(SIGUSR1);
  const char* said = has_happened() ? "?" : "i";
  if (write(output, said, 1) != 1 || write(to_agent, said, 1) != 1) _exit(1);
  for (int i = 0; i < 500 && !has_happened(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  said = has_happened() ? "l" : "?";
  _exit(write(output, said, 1) == 1 ? 0 : 1);
}

TEST(AgentLoss, DiffersFromOtherSignalsOfThatNumber) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t agent = fork();
  ASSERT_GE(agent, 0);
  if (agent == 0) {
    int from_worker[2];
    if (pipe(from_worker) != 0) _exit(1);
    if (fork() == 0) be_worker(fds[1], from_worker[1]);
    char first = 0;
    _exit(read(from_worker[0], &first, 1) == 1 ? 0 : 1);
  }
  close(fds[1]);
  std::string said;
  char letter = 0;
  while (read(fds[0], &letter, 1) == 1) said += letter;
  close(fds[0]);
  EXPECT_EQ(waitpid(agent, nullptr, 0), agent);
  EXPECT_EQ(said, "il");
}

// Here the agent is alive and sends the signal itself.
TEST(AgentLoss, AnAgentsSignalDiffersFromThoseOfOtherSenders) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t worker = fork();
  ASSERT_GE(worker, 0);
  if (worker == 0) {
    install();
    // The agent's workers do not hold the whole state, so the worker would end
    // at once if the agent were dead.
    const Reprieve reprieve(false);
    char said = write(fds[1], "r", 1) == 1 ? 'n' : '?';
    for (int i = 0; i < 500 && !has_happened(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (has_happened()) said = 'l';
    _exit(write(fds[1], &said, 1) == 1 ? 0 : 1);
  }
  close(fds[1]);
  char letter = 0;
  ASSERT_EQ(read(fds[0], &letter, 1), 1);
  kill(worker, SIGUSR1);
  ASSERT_EQ(read(fds[0], &letter, 1), 1);
  EXPECT_EQ(letter, 'l');
  close(fds[0]);
  EXPECT_EQ(waitpid(worker, nullptr, 0), worker);
}

}  // namespace
}  // namespace headroom::agent_loss
