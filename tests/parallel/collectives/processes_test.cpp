// Tests ranks that are real processes. In some tests a process dies or hangs.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "parallel/collectives/backend.h"
#include "tests/support/folder_store.h"

extern char** environ;

namespace headroom::collectives {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

std::string new_folder() {
  std::string folder = testing::TempDir() + "ranks-XXXXXX";
  EXPECT_NE(mkdtemp(folder.data()), nullptr) << folder;
  return folder;
}

pid_t start_rank(const std::string& backend, int rank, int size,
                 const std::string& folder, const std::string& mode) {
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
  return process;
}

// Returns the exit codes of `size` ranks, or -SIGNAL for a rank that a signal
// ended. All ranks are killed after `limit`.
std::vector<int> run_processes(const std::string& backend, int size,
                               const std::string& mode, seconds limit) {
  const std::string folder = new_folder();
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    processes.push_back(start_rank(backend, rank, size, folder, mode));
  }
  std::vector<int> codes(size, -1000);
  const Clock::time_point deadline = Clock::now() + limit;
  for (int rank = 0; rank < size; ++rank) {
    // If a rank hangs, it is the last one; its peers have ended by this time.
    const bool hangs = mode == "hang" && rank == size - 1;
    int status = 0;
    while (waitpid(processes[rank], &status, WNOHANG) == 0) {
      if (hangs || Clock::now() > deadline) kill(processes[rank], SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    codes[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  fs::remove_all(folder);
  return codes;
}

class ProcessesTest : public testing::TestWithParam<std::string> {};

TEST_P(ProcessesTest, EveryCollectiveWorks) {
  EXPECT_EQ(run_processes(GetParam(), 3, "check", seconds(60)),
            (std::vector<int>{0, 0, 0}));
}

TEST_P(ProcessesTest, AKilledRankEndsTheOthersAtOnce) {
  // This is much less than the 20 s of one operation.
  EXPECT_EQ(run_processes(GetParam(), 3, "die", seconds(15)),
            (std::vector<int>{7, 7, -SIGKILL}));
}

TEST_P(ProcessesTest, AHangingRankIsGivenUpAfterTheTimeLimit) {
  // The hanging rank sleeps for a minute.
  EXPECT_EQ(run_processes(GetParam(), 3, "hang", seconds(20)),
            (std::vector<int>{7, 7, -SIGKILL}));
}

// The port on which `process` listens, in the host's byte order; 0 if there is
// none.
int listening_port(pid_t process) {
  const fs::path about = "/proc/" + std::to_string(process);
  std::set<std::string> inodes;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(about / "fd", error)) {
    const std::string target = fs::read_symlink(entry.path(), error).string();
    if (target.starts_with("socket:[")) {
      inodes.insert(target.substr(8, target.size() - 9));
    }
  }
  std::ifstream table(about / "net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    if (fields.at(3) == "0A" && inodes.contains(fields.at(9))) {
      return std::stoi(fields[1].substr(fields[1].find(':') + 1), nullptr, 16);
    }
  }
  return 0;
}

size_t open_files(pid_t process) {
  const fs::directory_iterator files("/proc/" + std::to_string(process) +
                                     "/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

// Starts a connection to `port`; the caller owns the handle.
int stranger_at(int port) {
  const int handle =
      socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  name.sin_port = htons(static_cast<uint16_t>(port));
  connect(handle, reinterpret_cast<sockaddr*>(&name), sizeof name);
  return handle;
}

bool is_any_answered(const std::vector<int>& strangers,
                     std::chrono::milliseconds limit) {
  std::vector<pollfd> waiting;
  for (const int stranger : strangers)
    waiting.push_back({stranger, POLLOUT, 0});
  return poll(waiting.data(), waiting.size(), static_cast<int>(limit.count())) >
         0;
}

class TensorPortTest : public testing::TestWithParam<std::string> {};

TEST_P(TensorPortTest, StrangersCostNothing) {
  const std::string folder = new_folder();
  FolderStore store(folder);
  const pid_t first = start_rank(GetParam(), 0, 2, folder, "besieged");
  // The rank accepts connections from here on.
  store.get("test/secret", seconds(60));
  const int port = listening_port(first);
  ASSERT_NE(port, 0);

  // While the rank waits for the second rank, it gets more connections from
  // strangers than it may have files open. Some send nothing, others send
  // random bytes.
  const size_t before = open_files(first);
  std::vector<int> strangers;
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(stranger_at(port));
    const std::string words(i % 2 == 0 ? 0 : i % 50, '\0');
    send(strangers.back(), words.data(), words.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(is_any_answered(strangers, seconds(30)));
  EXPECT_LE(open_files(first), before + 10);
  const pid_t second = start_rank(GetParam(), 1, 2, folder, "besieged");
  for (const char* key : {"connected 0", "connected 1"}) {
    EXPECT_NO_THROW(store.get(key, seconds(60))) << key;
  }
  // From here on the rank accepts no connection, unless ranks may connect
  // later.
  strangers.push_back(stranger_at(port));
  EXPECT_EQ(is_any_answered({strangers.back()}, std::chrono::milliseconds(300)),
            GetParam() == "lazy_network");
  send(strangers.back(), "let me in", 9, MSG_NOSIGNAL);
  store.set("go", "");
  for (const pid_t rank : {first, second}) {
    int status = 0;
    EXPECT_EQ(waitpid(rank, &status, 0), rank);
    EXPECT_EQ(status, 0);
  }
  for (const int stranger : strangers) close(stranger);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Backends, TensorPortTest,
                         testing::Values("network", "lazy_network"),
                         [](const auto& info) { return info.param; });

TEST(TensorPort, IsNotInheritedByAProgramStartedMeanwhile) {
  const std::string folder = new_folder();
  const auto store = std::make_shared<FolderStore>(folder);
  const auto connect = [&](int rank) {
    return make_network_communicator(store, "parent", rank, 2, {});
  };
  auto connecting = std::async(std::launch::async, connect, 1);
  const auto first = connect(0), second = connecting.get();
  ASSERT_NE(listening_port(getpid()), 0);

  // A process must not use the port of its parent: it opens its own port once
  // its peers have started, and here none of them starts.
  const pid_t started = start_rank("network", 0, 2, folder, "check");
  store->get("started 0", seconds(60));
  EXPECT_EQ(listening_port(started), 0);
  kill(started, SIGKILL);
  waitpid(started, nullptr, 0);
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessesTest,
                         testing::Values("network", "lazy_network",
                                         "shared_memory", "machines"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace headroom::collectives
