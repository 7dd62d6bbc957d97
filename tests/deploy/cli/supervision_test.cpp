// Runs the whole program, with workers that only pretend to train.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "tests/deploy/cli/supervision.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using testing::count_of;
using testing::descendants;
using ::testing::HasSubstr;
using testing::Json;
using ::testing::Not;
using testing::Program;
using testing::ProgramResult;
using testing::run_program;
using testing::Supervision;
using testing::text_of;

TEST_F(Supervision, ARunEndsWithItsResults) {
  const ProgramResult run = run_train({"--processes", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("results:  mAP50 0.750  mAP 0.125\n"));
  EXPECT_THAT(run.out, HasSubstr("end:      all 12 steps done\n"));
  EXPECT_THAT(run.err, HasSubstr("processes 2 x "));
  EXPECT_THAT(run.err, HasSubstr("warning rank 1 of 2, threads "));
  EXPECT_THAT(run.err, HasSubstr("warning: step 12: 2 images were skipped\n"));
  EXPECT_THAT(run.err, HasSubstr("epoch 3/3  P 0.500 R 0.250 mAP50 0.750"));
  // An epoch takes 80 ms, but the status is polled only every 250 ms.
  EXPECT_THAT(run.err, ContainsRegex("trained epoch 1\n(.*\n)*trained epoch 2\n"
                                     "(.*\n)*trained epoch 3\n"));
}

TEST_F(Supervision, JsonIsTheOnlyOutput) {
  const ProgramResult run = run_train({"--json"});
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["map50"], 0.75);
  EXPECT_EQ(json["exit_code"], 0);
  EXPECT_EQ(json["run_directory"], (folder_ / "runs/train/exp").string());
}

TEST_F(Supervision, ARefusedCommandLineIsOneLineAndJsonOnRequest) {
  const ProgramResult run = run_headroom({"train", "--epcohs", "3", "--json"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "[config] unknown flag --epcohs: did you mean '--epochs'?\n");
  EXPECT_EQ(Json::parse(run.out)["exit_code"], 2);
}

TEST_F(Supervision, UnderALauncherRankZeroAloneRefusesTheCommandLine) {
  const auto refused_as = [&](int rank, const std::string& words) {
    const std::string number = std::to_string(rank);
    return run_program(
        {"/bin/sh", "-c",
         "OMPI_COMM_WORLD_RANK=" + number +
             " OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=" + number +
             " OMPI_COMM_WORLD_LOCAL_SIZE=2 '" + headroom().string() + "' " +
             words},
        folder_);
  };
  for (const std::string words : {"train --epcohs 3 --json", "trian", ""}) {
    const ProgramResult first = refused_as(0, words);
    EXPECT_EQ(first.exit_code, 2);
    EXPECT_EQ(count_of(first.err, "\n"), 1u) << first.err;
    const ProgramResult second = refused_as(1, words);
    EXPECT_EQ(second.exit_code, 2);
    EXPECT_EQ(second.err, "");
    EXPECT_EQ(second.out, "");
  }
  // The program does not wait for an unreachable address.
  const ProgramResult lost = refused_as(1, "train --coordinator foo --data x");
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_LT(lost.seconds, 10);
}

TEST_F(Supervision, AnAddressWithoutAPortIsRefusedAtOnce) {
  for (const std::string address : {"foo", "foo:", "127.0.0.1:0", ":29500"}) {
    const ProgramResult run = run_headroom({"train", "--coordinator", address});
    EXPECT_EQ(run.exit_code, 2) << address;
    EXPECT_THAT(run.err, HasSubstr("--coordinator " + address)) << address;
    EXPECT_LT(run.seconds, 2) << address;
  }
}

TEST_F(Supervision, AResultThatCannotBeWrittenIsNoSuccess) {
  const std::string program = "'" + headroom().string() + "' ";
  for (const std::string words : {"plan --json", "plan", "--help"}) {
    const ProgramResult run = run_program(
        {"/bin/sh", "-c", program + words + " > /dev/full"}, folder_);
    EXPECT_EQ(run.exit_code, 5) << words;
    EXPECT_THAT(run.err, HasSubstr("could not be written to standard output"));
  }
  // A refusal keeps its exit code, even if its message cannot be written.
  EXPECT_EQ(run_program({"/bin/sh", "-c",
                         program + "plan --batch 0 --json > /dev/full"},
                        folder_)
                .exit_code,
            2);
}

// The program ends with the usual exit code, 128 + SIGPIPE.
TEST_F(Supervision, AReaderThatLeavesIsNoError) {
  const std::string program = "'" + headroom().string() + "' ";
  for (const std::string words :
       {"plan --cfg yolov5s --json", "plan --cfg yolov5s", "--help"}) {
    const ProgramResult run =
        run_program({"/bin/bash", "-c",
                     "{ sleep .5; " + program + words +
                         "; echo $? >code.txt; } | true; cat code.txt"},
                    folder_);
    EXPECT_EQ(run.out, "141\n") << words;
    EXPECT_EQ(run.err, "") << words;
  }
}

TEST_F(Supervision, APlanIsPrintedWithoutDataOrWorkers) {
  fs::remove(folder_ / "bin/headroom-worker");
  const ProgramResult run =
      run_headroom({"plan", "--cfg", "yolov5s", "--layout", "data=2,pipeline=2",
                    "--bn-group", "2", "--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Json::parse(run.out)["world_size"], 4);
  EXPECT_LT(run.seconds, 1);
  EXPECT_FALSE(fs::exists(folder_ / "runs"));
  const ProgramResult refused =
      run_headroom({"plan", "--layout", "spatial=64", "--json"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("64 ranks > 640 rows / 32 = 20 blocks"));
  EXPECT_EQ(Json::parse(refused.out)["exit_code"], 2);
}

// The run is in a container of 530 MiB. A training of this size would have to
// change its batch-norm groups there.
TEST_F(Supervision, APlanForThisMachineHasTheLimitsOfATraining) {
  const fs::path root = folder_ / "machine";
  const fs::path group = root / "sys/fs/cgroup";
  fs::create_directories(root / "proc/self");
  fs::create_directories(group);
  std::ofstream(root / "proc/meminfo")
      << "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB\n";
  std::ofstream(root / "proc/self/mountinfo")
      << "30 21 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
  std::ofstream(root / "proc/self/cgroup") << "0::/\n";
  std::ofstream(group / "memory.max") << (int64_t{530} << 20) << "\n";
  std::ofstream(group / "memory.current") << (int64_t{70} << 20) << "\n";
  setenv("HEADROOM_MACHINE_ROOT", root.c_str(), 1);
  for (const char* command : {"train", "plan"}) {
    const ProgramResult run =
        run_headroom({command, "--synthetic-input", "--cfg", "yolov5n",
                      "--batch", "16", "--device", "cpu"});
    EXPECT_EQ(run.exit_code, 3) << run.err;
    EXPECT_THAT(run.err, HasSubstr("[plan] memory: 530 MiB by the container's "
                                   "limit (cgroup), 460 MiB free; each worker "
                                   "may take "))
        << command;
  }
}

TEST_F(Supervision, AMissingWorkerProgramIsReportedBeforeAnythingStarts) {
  fs::remove(folder_ / "bin/headroom-worker");
  const ProgramResult run = run_train();
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err,
            "[launch] there is no program " +
                (folder_ / "bin/headroom-worker").string() +
                ": build it (cmake --build build --target headroom-worker); it "
                "belongs beside headroom\n");
}

TEST_F(Supervision, TooFewDescriptorsAreNamedBeforeAnythingStarts) {
  const auto with_limit = [&](const std::string& limit,
                              const std::vector<std::string>& words) {
    const ProgramResult run = run_program(
        testing::joined(
            {"bash", "-c", "ulimit -n " + limit + "; exec \"$@\"", "headroom"},
            words),
        folder_);
    EXPECT_EQ(run.exit_code, 5) << run.err;
    EXPECT_THAT(run.err, HasSubstr("may open " + limit + " files at once"));
    EXPECT_THAT(run.err, HasSubstr("ulimit -n 1024"));
  };
  with_limit("20", train());
  with_limit("20",
             train({"--coordinator", "unix:" + (folder_ / "none").string()}));
  with_limit("7", {train().front(), "coordinator", "--synthetic-input",
                   "--expected-workers", "1"});
}

TEST_F(Supervision, AWorkerThatDiesAtOnceIsReportedWithItsLastOutput) {
  let_workers("die");
  const ProgramResult run = run_train();
  EXPECT_EQ(run.exit_code, 5) << run.err;
  EXPECT_THAT(run.err, HasSubstr("no more strength"));
  EXPECT_THAT(run.err, HasSubstr("ended with exit code 7"));
  EXPECT_LT(run.seconds, 10);
}

TEST_F(Supervision, AWorkersRefusalIsPrintedOnce) {
  let_workers("refuse");
  const ProgramResult run = run_train({"--processes", "2"});
  EXPECT_EQ(run.exit_code, 4) << run.err;
  EXPECT_EQ(count_of(run.err, "[data] nothing is left: give other images"), 1u)
      << run.err;
}

TEST_F(Supervision, TheReaderOfLabelsReportsItsOwnRefusalOrItsLastOutput) {
  const auto planned = [&](const char* behave) {
    let_workers(behave);
    return run_headroom({"plan", "--cfg", "yolov5n", "--data", "data.yaml",
                         "--memory-limit", "1GiB"});
  };
  const ProgramResult refused = planned("refuse");
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_EQ(refused.err, "[data] [odd] no labels: write some\n");
  const ProgramResult killed = planned("crash");
  EXPECT_EQ(killed.exit_code, 5);
  EXPECT_EQ(count_of(killed.err, "it is started again"), 2u) << killed.err;
  EXPECT_THAT(
      killed.err,
      HasSubstr("[labels] the worker that reads labels was killed by signal 9 "
                "(SIGKILL); its last words: the labels are on fire: leave "
                "--data out to plan without labels\n"));
}

TEST_F(Supervision, AReaderOfLabelsThatIsKilledOnceIsStartedAgain) {
  let_workers("hesitate");
  std::vector<std::string> command = train();
  command.pop_back();  // removes --noautoanchor
  const ProgramResult run = run_program(command, folder_);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(count_of(run.err,
                     "the worker that reads labels was killed by signal 9 "
                     "(SIGKILL): it is started again"),
            1u)
      << run.err;
}

TEST_F(Supervision, AWorkerThatIsKilledEachTimeEndsTheRunWithFive) {
  let_workers("crash");
  const ProgramResult run = run_train({"--processes", "2"});
  EXPECT_EQ(run.exit_code, 5) << run.err;
  EXPECT_THAT(run.err, HasSubstr("killed by signal 9"));
  EXPECT_THAT(run.err, HasSubstr("for the fifth time without a step between"));
  EXPECT_EQ(count_of(run.err, "the roof is on fire"), 1u) << run.err;
  EXPECT_LT(run.seconds, 15);
}

TEST_F(Supervision, OneInterruptStopsAtACommittedStep) {
  const auto run =
      started("slow", "rank 0 has committed a step", {"--processes", "2"});
  const ProgramResult result = interrupted(*run);
  EXPECT_THAT(result.err,
              HasSubstr("stopping at the next committed step (Ctrl-C again to "
                        "stop at once)\n"));
  EXPECT_THAT(result.err, HasSubstr("interrupted after step 3; go on with "
                                    "--resume"));
}

TEST_F(Supervision, ASecondInterruptStopsProcessesThatIgnoreTheFirst) {
  const auto run = started("stubborn", "rank 0 of 1");
  run->signal(SIGTERM);
  ASSERT_TRUE(wait_for("stopping at the next committed step"));
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  run->signal(SIGTERM);
  const ProgramResult result = run->join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped at once"));
}

// Three interrupts arrive within 0.2 s.
TEST_F(Supervision, InterruptsInQuickSuccessionAreAllCounted) {
  const auto run = started("stubborn", "rank 0 of 1");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (int times = 0; times < 3; ++times) {
    run->signal(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(66));
  }
  const auto asked = std::chrono::steady_clock::now();
  const ProgramResult result = run->join();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_THAT(result.err, HasSubstr("stopped at once"));
  EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(2));
}

TEST_F(Supervision, AnInterruptBeforeTheFirstStepEndsTheRunAtOnce) {
  let_workers("idle");
  for (const std::string moment : {"", "results in", "rank 0 of 1"}) {
    Program run(train(), folder_);
    if (moment.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    } else {
      ASSERT_TRUE(wait_for(moment));
    }
    run.signal(SIGINT);
    const auto asked = std::chrono::steady_clock::now();
    const ProgramResult result = run.join();
    EXPECT_EQ(result.exit_code, 130) << moment << result.err;
    EXPECT_LT(std::chrono::steady_clock::now() - asked, std::chrono::seconds(2))
        << moment;
    expect_nobody_left();
    EXPECT_FALSE(fs::exists(folder_ / "runs")) << moment;
  }
}

// NCCL refuses two processes of one host on the same card, so each gets a host
// name of its own.
TEST_F(Supervision, WorkersThatShareACardAreSeparateHostsToNccl) {
  let_workers("host");
  setenv("HEADROOM_DEVICE_PLUGIN", "/none", 1);
  setenv("FAKE_DEVICES", "2", 1);
  const std::string shared =
      run_program(train({"--processes", "2", "--device", "0", "--set",
                         "share_devices=true"}),
                  folder_)
          .err;
  const std::string apart =
      run_train({"--processes", "2", "--device", "0,1"}).err;
  EXPECT_THAT(shared, ContainsRegex("rank 0 is host '[^']+-0'"));
  EXPECT_THAT(shared, ContainsRegex("rank 1 is host '[^']+-1'"));
  EXPECT_THAT(apart, HasSubstr("rank 1 is host ''"));
}

// Under MPI all processes leave together, which can take long on a busy
// machine. If one were killed at that time, mpirun would report a good run as
// failed.
TEST_F(Supervision, WorkersOfAGoodRunHaveTimeToLeave) {
  let_workers("late");
  const ProgramResult run = run_train();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  ASSERT_TRUE(fs::exists(folder_ / "left")) << run.err;
  // The coordinator has ended by then, so the agent must not wait for it.
  EXPECT_LT(
      fs::file_time_type::clock::now() - fs::last_write_time(folder_ / "left"),
      std::chrono::seconds(3));
}

TEST_F(Supervision, NoProcessOutlivesAKilledSupervisor) {
  const auto run = started("stubborn", "rank 1 of 2", {"--processes", "2"});
  run->signal(SIGKILL);
  run->join();
}

TEST_F(Supervision, APortInUseIsOneLine) {
  let_workers("stubborn");
  Program first(train({"--token-file", token_file()}), folder_);
  ASSERT_TRUE(wait_for("--coordinator "));
  const std::string address = address_in(standard_error());
  fs::create_directories(folder_ / "second");
  const ProgramResult second =
      run_program({headroom(), "coordinator", "--listen", address,
                   "--synthetic-input", "--cfg", "yolov5n"},
                  folder_ / "second");
  EXPECT_EQ(second.exit_code, 2) << second.err;
  EXPECT_EQ(count_of(second.err, "\n"), 1u) << second.err;
  EXPECT_THAT(second.err, HasSubstr(address));
}

// The run's processes meet in a folder that other users cannot enter.
TEST_F(Supervision, StatusShowsProcessesAndPlan) {
  const auto run = started("slow", "rank 1 of 2", {"--processes", "2"});
  const std::string address = address_in(standard_error());
  ASSERT_TRUE(address.starts_with("unix:/")) << address;
  const fs::path socket = address.substr(5);
  EXPECT_EQ(fs::status(socket.parent_path()).permissions(),
            fs::perms::owner_all);
  fs::create_directories(folder_ / "status");
  const ProgramResult status =
      run_program({headroom(), "status", "--coordinator", address, "--json"},
                  folder_ / "status");
  EXPECT_EQ(status.exit_code, 0) << status.err;
  const Json json = Json::parse(status.out);
  EXPECT_EQ(json["state"], "running");
  EXPECT_EQ(json["members"].size(), 2u);
  interrupted(*run);
  EXPECT_FALSE(fs::exists(socket.parent_path()));
}

// A run with a token replies to every client that has the same token.
TEST_F(Supervision, ARunWithATokenAnswersClientsThatHaveIt) {
  const auto run =
      started("slow", "rank 0 of 1", {"--token-file", token_file()});
  const std::string address = address_in(standard_error());
  EXPECT_TRUE(address.starts_with("127.0.0.1:")) << address;
  fs::create_directories(folder_ / "status");
  std::vector<std::string> words = {headroom(), "status", "--coordinator",
                                    address};
  const ProgramResult stranger = run_program(words, folder_ / "status");
  EXPECT_EQ(stranger.exit_code, 2) << stranger.err;
  EXPECT_THAT(stranger.err, HasSubstr("wrong join token"));
  words.insert(words.end(), {"--token-file", token_file()});
  EXPECT_EQ(run_program(words, folder_ / "status").exit_code, 0);
  EXPECT_TRUE(descendants(run->pid(), std::string(32, 't')).empty())
      << "on a command line";
  interrupted(*run);
}

// The exit code of `body`, run as another user of this machine.
int as_another_user(const std::function<int()>& body) {
  constexpr uid_t kNobody = 65534;
  const pid_t child = fork();
  if (child == 0) {
    const bool is_other = setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 &&
                          setuid(kNobody) == 0;
    _exit(is_other ? body() : 100);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

TEST_F(Supervision, AnotherUserOfTheMachineReachesNothingOfARun) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto run =
      started("slow", "rank 1 of 2", {"--processes", "2", "--page", "off"});
  const fs::path socket = address_in(standard_error()).substr(5);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  socket.string().copy(name.sun_path, sizeof(name.sun_path) - 1);
  const auto connects = [&] {
    const int handle = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int failed =
        connect(handle, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0
            ? 0
            : errno;
    close(handle);
    return failed;
  };
  EXPECT_EQ(connects(), 0) << "this user";
  EXPECT_EQ(as_another_user(connects), EACCES);
  EXPECT_EQ(as_another_user(
                [&] { return access(socket.c_str(), F_OK) == 0 ? 0 : errno; }),
            EACCES);
  EXPECT_EQ(as_another_user([&] {
              const int folder =
                  open(socket.parent_path().c_str(), O_RDONLY | O_DIRECTORY);
              return folder >= 0 ? 0 : errno;
            }),
            EACCES);
  // Ten thousand attempts to connect have no effect on the run, because the
  // folder stops them.
  EXPECT_EQ(as_another_user([&] {
              int last = 0;
              for (int i = 0; i < 10000; ++i) last = connects();
              return last;
            }),
            EACCES);
  EXPECT_TRUE(testing::listening_ports(run->pid()).empty());
  interrupted(*run);
}

TEST_F(Supervision, UnderMpirunTheSlotsBecomeAgentsOfOneRun) {
  if (system("command -v mpirun >/dev/null") != 0) {
    GTEST_SKIP() << "there is no mpirun here";
  }
  const auto two_slots = [&](const std::vector<std::string>& more) {
    return run_program(testing::joined({"mpirun", "-np", "2", "--oversubscribe",
                                        "--allow-run-as-root"},
                                       train(more)),
                       folder_);
  };
  const ProgramResult run = two_slots({"--json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  // Only the process with rank 0 prints a result.
  EXPECT_EQ(Json::parse(run.out)["map50"], 0.75);
  EXPECT_THAT(run.err, HasSubstr("rank 0 of 2"));
  EXPECT_THAT(run.err, HasSubstr("rank 1 of 2"));
  const ProgramResult refused = two_slots({"--processes", "0"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_EQ(count_of(refused.err, "[config] --processes 0"), 1u)
      << "printed once: " << refused.err;
}

// The command of a slot of a two-host job, with the variables of Open MPI.
std::vector<std::string> on_host(int rank,
                                 const std::vector<std::string>& command) {
  return testing::joined(
      {"env", "OMPI_COMM_WORLD_RANK=" + std::to_string(rank),
       "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
       "OMPI_COMM_WORLD_LOCAL_SIZE=1",
       "PMIX_NAMESPACE=" + std::to_string(getpid())},
      command);
}

TEST_F(Supervision, HostsMeetInASharedFolder) {
  const std::vector<std::string> command =
      train({"--rendezvous", "meet", "--insecure-network"});
  for (const char* host : {"first", "second"}) {
    fs::create_directories(folder_ / host);
    for (const char* name : {"data.yaml", "images", "meet"}) {
      fs::create_symlink(folder_ / name, folder_ / host / name);
    }
  }
  fs::create_directories(folder_ / "meet");
  Program first(on_host(0, command), folder_ / "first");
  Program second(on_host(1, command), folder_ / "second");
  const ProgramResult ended = first.join();
  if (ended.err.find("this host has no address") != std::string::npos) {
    GTEST_SKIP() << "this machine has no network but loopback";
  }
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rank 0 of 2"));
  EXPECT_THAT(ended.out, HasSubstr("end:      all 12 steps done\n"));
  const ProgramResult other = second.join();
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_EQ(other.out, "");
  EXPECT_THAT(other.err, HasSubstr("rank 1 of 2"));
  EXPECT_TRUE(fs::is_empty(folder_ / "meet"));
}

TEST_F(Supervision, SeveralHostsNeedAPlaceToMeetAndAPrivateNetwork) {
  const ProgramResult nowhere = run_program(on_host(0, train()), folder_);
  EXPECT_EQ(nowhere.exit_code, 2);
  EXPECT_THAT(nowhere.err,
              HasSubstr("give --rendezvous DIR, a folder that all hosts share, "
                        "or --coordinator HOST:PORT\n"));
  const ProgramResult insecure = run_program(
      on_host(0, train({"--coordinator", "192.0.2.1:29500"})), folder_);
  EXPECT_EQ(insecure.exit_code, 2);
  EXPECT_EQ(insecure.err,
            "[network] 192.0.2.1:29500 is beyond loopback, where control "
            "traffic must have TLS and a join token, and there is neither: "
            "give --certs DIR (headroom coordinator --init-certs DIR makes "
            "it), or allow plain text with --insecure-network on a private "
            "network\n");
  for (const char* command : {"agent", "status", "train"}) {
    std::vector<std::string> words = {headroom(), command, "--coordinator",
                                      "192.0.2.1:29500"};
    if (command == std::string("train")) words = train({words[2], words[3]});
    const ProgramResult refused = run_program(words, folder_);
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_EQ(refused.err, insecure.err) << command;
  }
}

TEST_F(Supervision, CoordinatorAndAgentsOnTheirOwn) {
  fs::create_directories(folder_ / "server");
  fs::create_directories(folder_ / "joiner");
  Program server({headroom(), "coordinator", "--expected-workers", "3",
                  "--synthetic-input", "--cfg", "yolov5n"},
                 folder_ / "server");
  std::string said;
  ASSERT_TRUE(eventually([&] {
    said = text_of(folder_ / "server/stderr.txt");
    return said.find("listening on ") != std::string::npos &&
           said.ends_with('\n');
  })) << said;
  const size_t at = said.find("listening on ");
  const std::string address =
      said.substr(at + 13, said.find('\n', at) - at - 13);
  Program joiner({headroom(), "train", "--coordinator", address},
                 folder_ / "joiner");
  const ProgramResult agent =
      run_headroom({"agent", "--coordinator", address, "--processes", "2"});
  EXPECT_EQ(agent.exit_code, 0) << agent.err;
  EXPECT_THAT(agent.err, HasSubstr("all 12 steps done"));
  EXPECT_EQ(joiner.join().exit_code, 0);
  const ProgramResult ended = server.join();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("finished: all 12 steps done"));
}

TEST_F(Supervision, AnAgentWithoutACoordinatorGivesUp) {
  const ProgramResult agent =
      run_headroom({"agent", "--coordinator", "nowhere"});
  EXPECT_EQ(agent.exit_code, 2);
  EXPECT_EQ(agent.err,
            "[network] --coordinator nowhere is no address: write HOST:PORT, "
            "for example 10.0.0.5:29500\n");
}

}  // namespace
}  // namespace headroom::cli
