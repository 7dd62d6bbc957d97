// Real processes, one of which may die.
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace headroom::collectives {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// The exit codes of `size` ranks, -SIGNAL for those that a signal ended; all
// are killed after `limit`.
std::vector<int> run_processes(const std::string& backend, int size,
                               const std::string& mode, seconds limit) {
  std::string folder = testing::TempDir() + "ranks-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    ADD_FAILURE() << "no folder " << folder;
    return {};
  }
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::string> words = {
        HEADROOM_RANK_PROCESS, backend, std::to_string(rank),
        std::to_string(size),  folder,  mode};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t process = 0;
    EXPECT_EQ(posix_spawn(&process, words[0].c_str(), nullptr, nullptr,
                          arguments.data(), environ),
              0);
    processes.push_back(process);
  }
  std::vector<int> codes(size, -1000);
  const Clock::time_point deadline = Clock::now() + limit;
  for (int rank = 0; rank < size; ++rank) {
    // The last rank is the one that hangs: its peers have ended by now.
    const bool hangs = mode == "hang" && rank == size - 1;
    int status = 0;
    while (waitpid(processes[rank], &status, WNOHANG) == 0) {
      if (hangs || Clock::now() > deadline) kill(processes[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    codes[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::filesystem::remove_all(folder);
  return codes;
}

class ProcessesTest : public testing::TestWithParam<std::string> {};

TEST_P(ProcessesTest, EveryCollectiveWorks) {
  EXPECT_EQ(run_processes(GetParam(), 2, "check", seconds(60)),
            (std::vector<int>{0, 0}));
  EXPECT_EQ(run_processes(GetParam(), 3, "check", seconds(60)),
            (std::vector<int>{0, 0, 0}));
}

TEST_P(ProcessesTest, AKilledRankEndsTheOthersAtOnce) {
  // Well below the 20 s of one operation.
  EXPECT_EQ(run_processes(GetParam(), 3, "die", seconds(15)),
            (std::vector<int>{7, 7, -SIGKILL}));
}

TEST_P(ProcessesTest, AHangingRankIsGivenUpAfterTheTimeLimit) {
  // The hanging one sleeps for a minute.
  EXPECT_EQ(run_processes(GetParam(), 3, "hang", seconds(20)),
            (std::vector<int>{7, 7, -SIGKILL}));
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessesTest,
                         testing::Values("gloo", "shared_memory"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace headroom::collectives
