#include "deploy/cli/process/child_process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>
#include <vector>

#include "parallel/base/check.h"

namespace {
std::atomic<bool> has_no_descriptor = false;
}

// Replaces the system's function, and fails while has_no_descriptor is true.
extern "C" int eventfd(unsigned int count, int flags) noexcept {
  if (!has_no_descriptor) {
    return static_cast<int>(syscall(SYS_eventfd2, count, flags));
  }
  errno = EMFILE;
  return -1;
}

namespace headroom::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ChildOptions shell(const std::string& script) {
  ChildOptions options;
  options.name = "child";
  options.command = {"/bin/sh", "-c", script};
  return options;
}

bool is_alive(int pid) {
  for (int i = 0; i < 200; ++i) {
    if (kill(pid, 0) != 0) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

TEST(ChildProcess, ItsExitCodeAndLastOutput) {
  ChildProcess child(shell("echo out; echo err >&2; exit 3"));
  EXPECT_EQ(child.wait(seconds(20)), 3);
  EXPECT_EQ(child.last_words(), "out\nerr\n");
}

TEST(ChildProcess, ARefusalIsAValueBesideItsOutput) {
  ChildOptions options = shell(
      "echo '[x] said'; "
      "printf '{\"tag\":\"data\",\"text\":\"none\",\"remedy\":\"add some\"}' "
      ">/proc/self/fd/$HEADROOM_REFUSAL_FD; exit 4");
  ChildProcess without(options);
  EXPECT_NE(without.wait(seconds(20)), std::nullopt);
  EXPECT_FALSE(without.refusal()) << "words are no refusal";
  options.may_refuse = true;
  ChildProcess child(options);
  EXPECT_EQ(child.wait(seconds(20)), 4);
  ASSERT_TRUE(child.refusal());
  EXPECT_EQ(child.refusal()->line(), "[data] none: add some");
  EXPECT_EQ(child.refusal()->tag, "data");
  EXPECT_EQ(child.last_words(), "[x] said\n");
}

TEST(ChildProcess, TheRecordsOfItsLogHaveALevel) {
  std::mutex mutex;
  std::vector<ChildLine> lines;
  ChildOptions options = shell(
      "test -n \"$HEADROOM_LOG_RECORDS\" || exit 1; "
      "printf '\\0362%s\\n' '12:03:44 two are bad' >&2; echo plain");
  options.on_line = [&](const ChildLine& line) {
    std::lock_guard lock(mutex);
    lines.push_back(line);
  };
  ChildProcess child(options);
  EXPECT_EQ(child.wait(seconds(20)), 0);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].record.value().level, log::Level::kWarn);
  EXPECT_FALSE(lines[1].record);
  EXPECT_EQ(child.last_words(), "12:03:44 warning two are bad\nplain\n");
  EXPECT_EQ(child.telling_line(), "plain");
}

TEST(ChildProcess, ASignalIsAnExitCodeToo) {
  ChildProcess child(shell("kill -9 $$"));
  EXPECT_EQ(child.wait(seconds(20)), 128 + SIGKILL);
}

TEST(ChildProcess, OnlyTheLastLinesAreKeptAllAreHandedOver) {
  std::mutex mutex;
  size_t lines = 0;
  ChildOptions options = shell("for i in $(seq 1 50); do echo line $i; done");
  options.on_line = [&](const ChildLine&) {
    std::lock_guard lock(mutex);
    ++lines;
  };
  ChildProcess child(options);
  EXPECT_EQ(child.wait(seconds(20)), 0);
  EXPECT_EQ(lines, 50u);
  const std::string words = child.last_words();
  EXPECT_TRUE(words.starts_with("line 31\n")) << words;
  EXPECT_TRUE(words.ends_with("line 50\n")) << words;
}

TEST(ChildProcess, AnEndlessLineIsCutInPieces) {
  ChildProcess child(shell("head -c 100000 /dev/zero | tr '\\0' x"));
  EXPECT_EQ(child.wait(seconds(20)), 0);
  EXPECT_EQ(child.last_words().size(), 100'000u + 13u);
}

TEST(ChildProcess, AMissingProgramIsNamed) {
  ChildOptions options;
  options.name = "worker 0";
  options.command = {"/nowhere/headroom-worker"};
  try {
    ChildProcess child(options);
    FAIL() << "started";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[launch] worker 0 cannot start: /nowhere/headroom-worker: No "
                 "such file or directory: check that the file is there and may "
                 "be run");
  }
}

TEST(ChildProcess, OneWhoseOutputCannotBeReadIsEnded) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ChildOptions options = shell("exec sleep 60");
  options.passed_fds = {ends[1]};
  has_no_descriptor = true;
  try {
    const ChildProcess child(options);
    ADD_FAILURE() << "started";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("Too many open files"));
    EXPECT_EQ(error.exit_code(), ExitCode::kResource);
  }
  has_no_descriptor = false;
  close(ends[1]);
  // Only the child had another copy of the writing end; it has ended.
  pollfd reading{.fd = ends[0], .events = 0, .revents = 0};
  EXPECT_EQ(poll(&reading, 1, /*milliseconds=*/2000), 1);
  close(ends[0]);
}

TEST(ChildProcess, ItInheritsTheEnvironmentAndGetsTheAdditions) {
  setenv("HEADROOM_TEST_OURS", "1", 1);
  ChildOptions options = shell("echo $HEADROOM_TEST_OURS $OMP_NUM_THREADS");
  options.extra_environment = {{"OMP_NUM_THREADS", "2"}};
  ChildProcess child(options);
  EXPECT_EQ(child.wait(seconds(20)), 0);
  EXPECT_EQ(child.last_words(), "1 2\n");
}

TEST(ChildProcess, OnlyPassedDescriptorsAreOpenInIt) {
  const int passed = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int kept = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ChildOptions options =
      shell("ls /proc/self/fd/" + std::to_string(passed) +
            " && ! ls /proc/self/fd/" + std::to_string(kept) + " 2>/dev/null");
  options.passed_fds = {passed};
  ChildProcess child(options);
  EXPECT_EQ(child.wait(seconds(20)), 0) << child.last_words();
  close(passed);
  close(kept);
}

TEST(ChildProcess, ItHasAGroupOfItsOwnSoThatCtrlCPassesIt) {
  ChildProcess child(shell("sleep 100"));
  EXPECT_EQ(getpgid(child.pid()), child.pid());
  EXPECT_NE(getpgid(0), child.pid());
}

TEST(ChildProcess, AChildThatIgnoresTheRequestToEndIsKilled) {
  ChildProcess child(shell("trap '' TERM; echo ready; sleep 100 & wait"));
  while (child.last_words().empty()) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(child.terminate(milliseconds(200)), 128 + SIGKILL);
}

TEST(ChildProcess, TheDestructorEndsTheWholeGroup) {
  int grandchild = 0;
  {
    ChildProcess child(shell("sleep 100 & echo $!; wait"));
    while (child.last_words().empty()) {
      std::this_thread::sleep_for(milliseconds(5));
    }
    grandchild = std::stoi(child.last_words());
  }
  EXPECT_FALSE(is_alive(grandchild));
}

TEST(ChildProcess, ItDiesWithItsParent) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto* child = new ChildProcess(shell("sleep 100"));
    const int pid = child->pid();
    [[maybe_unused]] ssize_t told = write(report[1], &pid, sizeof pid);
    kill(getpid(), SIGKILL);
  }
  int pid = 0;
  ASSERT_EQ(read(report[0], &pid, sizeof pid), ssize_t{sizeof pid});
  waitpid(parent, nullptr, 0);
  EXPECT_FALSE(is_alive(pid));
  close(report[0]);
  close(report[1]);
}

TEST(ChildProcess, AProcessThatItLeavesBehindDoesNotDelayItsEnd) {
  // `yes` fills the pipe faster than its lines are taken.
  for (const std::string left : {"sleep 30", "yes $(printf %01000d 0)"}) {
    const auto begin = std::chrono::steady_clock::now();
    ChildOptions options = shell("echo ready; " + left + " & exit 3");
    options.on_line = [](const ChildLine&) {
      std::this_thread::sleep_for(milliseconds(5));
    };
    ChildProcess child(options);
    EXPECT_EQ(child.wait(seconds(20)), 3);
    EXPECT_NE(child.last_words(), "");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(10));
    kill(-child.pid(), SIGKILL);
  }
}

TEST(ChildProcess, AProgramOfTheUserGetsItsEnvironmentAlone) {
  ChildOptions options = shell("env");
  options.environment = Environment{{"THEIRS", "1"}};
  ChildProcess child(options);
  EXPECT_EQ(child.wait(seconds(20)), 0);
  EXPECT_THAT(child.last_words(), ::testing::HasSubstr("THEIRS=1\n"));
  EXPECT_THAT(child.last_words(),
              ::testing::Not(::testing::HasSubstr(log::kRecordsVariable)));
  EXPECT_THAT(child.last_words(), ::testing::Not(::testing::HasSubstr("PATH")));
}

TEST(Offspring, OutlivesItsParentAndIsWaitedFor) {
  ChildProcess parent(
      shell("sh -c 'sleep 30' & sh -c 'sleep 30' & echo ready; wait"));
  while (parent.last_words().empty()) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  const Offspring offspring(parent);
  kill(parent.pid(), SIGKILL);
  ASSERT_TRUE(parent.wait(seconds(20)));
  EXPECT_FALSE(offspring.wait(milliseconds(50)));
  offspring.kill();
  EXPECT_TRUE(offspring.wait(seconds(20)));
}

TEST(Offspring, OfAChildWithoutDescendantsIsEmpty) {
  ChildProcess child(shell("echo ready; read never"));
  EXPECT_TRUE(Offspring(child).wait(milliseconds(0)));
}

}  // namespace
}  // namespace headroom::cli
