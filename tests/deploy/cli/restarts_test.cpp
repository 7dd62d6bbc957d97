// A run's processes are killed and started again. Workers only pretend to
// train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/deploy/cli/supervision.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using testing::count_of;
using testing::descendants;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Program;
using testing::ProgramResult;
using testing::text_of;

using Restarts = testing::Supervision;

TEST_F(Restarts, AKilledCoordinatorIsStartedAgainAndTheRunGoesOn) {
  const auto run = started("slow", "rank 1 of 2", {"--processes", "2"});
  for (int time = 1; time <= 2; ++time) {
    kill_all(descendants(run->pid(), "--config-fd"));
    ASSERT_TRUE(
        wait_for("the coordinator was started again and goes on with "
                 "generation 1, start " +
                 std::to_string(time + 1)))
        << standard_error();
  }
  EXPECT_THAT(standard_error(),
              HasSubstr("the coordinator was killed by signal 9 (SIGKILL): it "
                        "is started again at unix:/"));
  // After 5 s all processes are alive and get replies of the new coordinator;
  // an attempt to connect that comes too early takes 3 s.
  std::this_thread::sleep_for(std::chrono::seconds(5));
  const ProgramResult result = interrupted(*run);
  EXPECT_THAT(result.err, HasSubstr("interrupted after step 3"));
  EXPECT_EQ(count_of(result.err, "rank 1 of 2"), 1u) << "started once";
}

// Another process tries to take the port as soon as the coordinator is gone.
TEST_F(Restarts, AKilledCoordinatorsPortStaysReserved) {
  const auto run =
      started("slow", "rank 0 of 1", {"--token-file", token_file()});
  const std::string address = address_in(standard_error());
  sockaddr_in wanted{};
  wanted.sin_family = AF_INET;
  wanted.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  wanted.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1))));
  kill_all(descendants(run->pid(), "--config-fd"));
  const int thief = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(thief, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  bool is_stolen = false;
  for (int i = 0; i < 300 && !is_stolen; ++i) {
    is_stolen = bind(thief, reinterpret_cast<const sockaddr*>(&wanted),
                     sizeof wanted) == 0 &&
                listen(thief, 1) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_FALSE(is_stolen);
  EXPECT_TRUE(wait_for("goes on with generation 1, start 2"))
      << standard_error();
  close(thief);
  interrupted(*run);
}

TEST_F(Restarts, ALogThatCannotBeWrittenIsReportedAtOnceAndRetried) {
  const auto run = started("slow", "rank 0 of 1");
  const auto coordinators = descendants(run->pid(), "--config-fd");
  ASSERT_EQ(coordinators.size(), 1u);
  rlimit before{};
  const rlimit nothing{0, RLIM_INFINITY};
  ASSERT_EQ(prlimit(coordinators[0], RLIMIT_FSIZE, &nothing, &before), 0);
  EXPECT_TRUE(wait_for("coordinator.log: File too large"));
  EXPECT_THAT(standard_error(),
              HasSubstr("does not outlive its coordinator until the log can be "
                        "written"));
  ASSERT_EQ(prlimit(coordinators[0], RLIMIT_FSIZE, &before, nullptr), 0);
  EXPECT_TRUE(wait_for("the coordinator's log is written again"));
  kill(coordinators[0], SIGKILL);
  EXPECT_TRUE(wait_for("goes on with generation 1, start 2"))
      << standard_error();
  interrupted(*run);
}

// The log file is removed while the coordinator still has it open.
TEST_F(Restarts, ALogThatWasRemovedIsWrittenAnew) {
  const auto run = started("slow", "rank 0 of 1");
  ASSERT_TRUE(fs::remove(folder_ / "runs/train/exp/coordinator.log"));
  EXPECT_TRUE(wait_for("moved or removed: it is written anew"));
  kill_all(descendants(run->pid(), "--config-fd"));
  EXPECT_TRUE(wait_for("goes on with generation 1, start 2"))
      << standard_error();
  interrupted(*run);
}

// The successor of a killed worker finds what its peers have put into memory.
TEST_F(Restarts, ASuccessorSharesMemoryWithItsPeers) {
  const auto run =
      started("share", "shares as user 2 2 with 2", {"--processes", "2"});
  EXPECT_THAT(standard_error(), HasSubstr("shares as user 1 1 with 2"));
  kill(descendants(run->pid(), "headroom-worker").at(0), SIGKILL);
  EXPECT_TRUE(wait_for("shares as user 3 3 with 2")) << standard_error();
  interrupted(*run);
}

// The kernel counts its kills. Here the test's own folder has the count.
TEST_F(Restarts, AWorkerKilledForTheHostsMemoryComesBackSmaller) {
  const fs::path root = folder_ / "machine";
  fs::create_directories(root / "proc");
  std::ofstream(root / "proc/meminfo")
      << "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB\n";
  std::ofstream(root / "proc/vmstat") << "oom_kill 3\n";
  setenv("HEADROOM_MACHINE_ROOT", root.c_str(), 1);
  const auto run = started("slow", "rank 0 of 1");
  std::ofstream(root / "proc/vmstat") << "oom_kill 4\n";
  kill_all(descendants(run->pid(), "headroom-worker"));
  EXPECT_TRUE(
      wait_for("ran out of the host's memory and was killed by the "
               "kernel (memory: 64 GiB of this machine)"))
      << standard_error();
  EXPECT_TRUE(eventually([&] {
    return count_of(standard_error(), "rank 0 of 1") >= 2;
  })) << standard_error();
  EXPECT_THAT(standard_error(),
              HasSubstr("(memory: 64 GiB of this machine): in the next "
                        "generation each worker takes less, for its loaders "));
  // If the same signal comes from another process, it is an ordinary loss.
  kill_all(descendants(run->pid(), "headroom-worker"));
  EXPECT_TRUE(eventually([&] {
    return count_of(standard_error(), "rank 0 of 1") >= 3;
  })) << standard_error();
  EXPECT_EQ(count_of(standard_error(), "ran out of the host's memory"), 1u);
  interrupted(*run);
}

// The restarted coordinator has no log to continue from. The message says so
// once, and gives the command that resumes the run.
class LostLog : public Restarts, public ::testing::WithParamInterface<bool> {};

TEST_P(LostLog, EndsTheRunOnceWithTheCommandThatGoesOn) {
  const auto run = started("slow", "rank 0 of 1");
  const fs::path folder = folder_ / "runs/train/exp";
  fs::create_directories(folder / "checkpoints/step-1");
  std::ofstream(folder / "checkpoints/step-1/MANIFEST.json") << "{}\n";
  const pid_t coordinator = descendants(run->pid(), "--config-fd").at(0);
  const bool is_damaged = GetParam();
  run->signal(SIGSTOP);
  if (is_damaged) {
    kill(coordinator, SIGKILL);
    std::fstream log(folder / "coordinator.log",
                     std::ios::in | std::ios::out | std::ios::binary);
    log.seekp(12);
    log.put('x');
  } else {
    const rlimit nothing{0, RLIM_INFINITY};
    ASSERT_EQ(prlimit(coordinator, RLIMIT_FSIZE, &nothing, nullptr), 0);
    EXPECT_TRUE(eventually(
        [&] { return fs::file_size(folder / "coordinator.log.lock") == 0; }));
    kill(coordinator, SIGKILL);
  }
  run->signal(SIGCONT);
  const ProgramResult result = run->join();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const char* const refusal =
      is_damaged ? "is damaged in its first bytes" : "holds nothing of the run";
  EXPECT_EQ(count_of(result.err, refusal), 1u) << result.err;
  EXPECT_EQ(count_of(result.err, "it is started again"), 1u) << result.err;
  EXPECT_EQ(count_of(result.err, "name another"), 0u) << result.err;
  EXPECT_THAT(result.err, HasSubstr("the workers are asked to save"));
  EXPECT_THAT(result.err, HasSubstr("go on with: headroom train --resume "));
}

INSTANTIATE_TEST_SUITE_P(Restarts, LostLog, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "damaged" : "given_up";
                         });

TEST_F(Restarts, AKilledAgentIsStartedAgainWithNewWorkers) {
  const auto run = started("slow", "rank 1 of 2", {"--processes", "2"});
  const std::vector<pid_t> workers =
      descendants(run->pid(), "bin/headroom-worker");
  EXPECT_EQ(workers.size(), 2u);
  kill_all(descendants(run->pid(), "--supervised"));
  ASSERT_TRUE(wait_for("it is started again")) << standard_error();
  EXPECT_THAT(standard_error(),
              HasSubstr("the agent was killed by signal 9 (SIGKILL): it is "
                        "started again\n"));
  EXPECT_TRUE(eventually(
      [&] { return count_of(standard_error(), "rank 1 of 2") == 2; }));
  for (const pid_t pid : workers) {  // a worker may remain as a zombie
    EXPECT_EQ(text_of("/proc/" + std::to_string(pid) + "/cmdline"), "") << pid;
  }
  const ProgramResult result = interrupted(*run);
  EXPECT_EQ(count_of(result.err, "rank 1 of 2"), 2u) << result.err;
}

// The worker's agent continues to send heartbeats, which contain the age of the
// worker's last message.
TEST_F(Restarts, AStoppedWorkerIsLostAfterTwoSecondsAndReplaced) {
  using Clock = std::chrono::steady_clock;
  const auto run = started("slow", "rank 1 of 2", {"--processes", "2"});
  std::this_thread::sleep_for(
      std::chrono::seconds(1));  // wait until its agent sends heartbeats
  const std::vector<pid_t> workers =
      descendants(run->pid(), "bin/headroom-worker");
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1], SIGSTOP);
  const Clock::time_point stopped = Clock::now();
  ASSERT_TRUE(wait_for("was silent for 2000 ms")) << standard_error();
  const std::chrono::duration<double> noticed = Clock::now() - stopped;
  EXPECT_GT(noticed.count(), 1.5);
  EXPECT_LT(noticed.count(), 3);
  const std::string words = "/proc/" + std::to_string(workers[1]) + "/cmdline";
  EXPECT_TRUE(eventually([&] { return text_of(words).empty(); }))
      << "its agent kills it";
  run->signal(SIGINT);
  run->signal(SIGINT);
  run->join();
  EXPECT_THAT(standard_error(), Not(HasSubstr("agent_silent")));
}

// Kills a worker that waits for the other workers, and then the agent.
TEST_F(Restarts, AKillBeforeTheFirstGenerationEndsNoRun) {
  let_workers("hesitate");
  for (const char* victim : {"bin/headroom-worker", "--supervised"}) {
    std::error_code ignored;
    fs::remove(folder_ / "hesitated", ignored);
    Program run(train({"--processes", "2"}), folder_);
    EXPECT_TRUE(eventually([&] { return fs::exists(folder_ / "hesitated"); }));
    const std::vector<pid_t> victims = descendants(run.pid(), victim);
    ASSERT_FALSE(victims.empty());
    kill_all(victims);
    const ProgramResult result = run.join();
    EXPECT_EQ(result.exit_code, 0) << victim << result.err;
    EXPECT_THAT(result.err, HasSubstr("was killed by signal 9 (SIGKILL)"))
        << victim;
    expect_nobody_left();
  }
}

TEST_F(Restarts, AnAgentThatIsKilledEachTimeEndsTheRun) {
  const auto run = started("stubborn", "rank 0 of 1");
  pid_t last = 0;
  for (int time = 0; time < 5; ++time) {
    pid_t agent = last;
    ASSERT_TRUE(eventually([&] {
      const auto agents = descendants(run->pid(), "--supervised");
      if (!agents.empty()) agent = agents[0];
      return agent != last;
    })) << standard_error();
    kill(agent, SIGKILL);
    last = agent;
  }
  const ProgramResult result = run->join();
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_EQ(count_of(result.err, "it is started again"), 4u) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("the agent was killed by signal 9 (SIGKILL): it has "
                        "ended 5 times in a row without a step between\n"));
}

}  // namespace
}  // namespace headroom::cli
