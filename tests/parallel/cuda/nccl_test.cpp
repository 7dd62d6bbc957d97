// Tests ranks over NCCL. The tests are skipped by name if there is no GPU. Two
// processes share one GPU, and NCCL treats them as two hosts (NCCL_HOSTID).
// Only correctness is tested.
#include <ATen/ops/ones.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/collectives/communicator.h"
#include "tests/parallel/cuda/nccl_checks.h"
#include "tests/parallel/cuda/plugin.h"

extern char** environ;

namespace headroom::cuda {
namespace {

TEST(Nccl, OneRankDoesAll) {
  HEADROOM_NEEDS_DEVICE();
  const auto host = collectives::make_single_communicator();
  const auto ranks = plugin().api->connect_ranks(*host, {})->over(*host);
  EXPECT_NO_THROW(check_nccl(*ranks));
}

TEST(Nccl, MessagesThatAreNotConnectedAreRefused) {
  HEADROOM_NEEDS_DEVICE();
  const auto host = collectives::make_single_communicator();
  const auto ranks = plugin().api->connect_ranks(*host, {})->over(*host);
  EXPECT_THROW(ranks->send(at::ones({1}), 0), CheckFailure);
}

TEST(Nccl, ADeviceThatIsNotThereIsRefused) {
  HEADROOM_NEEDS_PLUGIN();
  const auto host = collectives::make_single_communicator();
  devices::DeviceCommunicatorOptions options;
  options.device = 99;
  EXPECT_THROW(plugin().api->connect_ranks(*host, options), Error);
}

// The program is in the folder of this test, on any machine.
std::string rank_process() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
         "nccl_rank_process";
}

// The exit codes of two ranks on device 0, or -SIGNAL for a rank that a signal
// ended.
std::vector<int> run_two(const std::string& mode, std::chrono::seconds limit) {
  std::string folder = testing::TempDir() + "nccl-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return {};
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> words = {
        rank_process(), kPluginFile, std::to_string(rank), "2", folder, mode};
    std::vector<std::string> variables = {
        "NCCL_HOSTID=rank" + std::to_string(rank), "NCCL_SOCKET_IFNAME=lo",
        "NCCL_NET=Socket", "NCCL_IB_DISABLE=1", "NCCL_RAS_ENABLE=0"};
    std::vector<char*> arguments, environment;
    for (std::string& word : words) arguments.push_back(word.data());
    for (std::string& one : variables) environment.push_back(one.data());
    for (char** one = environ; *one != nullptr; ++one) {
      environment.push_back(*one);
    }
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    pid_t process = 0;
    EXPECT_EQ(posix_spawn(&process, words[0].c_str(), nullptr, nullptr,
                          arguments.data(), environment.data()),
              0);
    processes.push_back(process);
  }
  std::vector<int> codes;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (const pid_t process : processes) {
    // If a rank hangs, it is the last one; its peer has ended by this time.
    const bool hangs = mode == "hang" && process == processes.back();
    int status = 0;
    while (waitpid(process, &status, WNOHANG) == 0) {
      if (hangs || std::chrono::steady_clock::now() > deadline) {
        kill(process, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status)
                                      : -WTERMSIG(status));
  }
  std::filesystem::remove_all(folder);
  return codes;
}

TEST(Nccl, TwoProcessesOnOneDevice) {
  HEADROOM_NEEDS_DEVICE();
  EXPECT_EQ(run_two("check", std::chrono::seconds(120)),
            (std::vector<int>{0, 0}));
}

TEST(Nccl, AKilledRankEndsTheOther) {
  HEADROOM_NEEDS_DEVICE();
  EXPECT_EQ(run_two("die", std::chrono::seconds(90)),
            (std::vector<int>{7, -SIGKILL}));
}

TEST(Nccl, AHangingRankIsGivenUpAfterTheTimeLimit) {
  HEADROOM_NEEDS_DEVICE();
  EXPECT_EQ(run_two("hang", std::chrono::seconds(50)),
            (std::vector<int>{7, -SIGKILL}));
}

}  // namespace
}  // namespace headroom::cuda
