// Tests the whole program from the view of an operator: cores, logs, files that
// remain, a network that fails. Workers only pretend to train.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "tests/coordinator/service/cuttable_wire.h"
#include "tests/deploy/cli/supervision.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::Json;
using ::testing::Not;
using testing::Program;
using testing::ProgramResult;
using testing::run_program;

using Operation = testing::Supervision;

// The program is bound to one core, first as mpirun does by default, then as
// the user requested.
TEST_F(Operation, ADefaultBindingOfTheLauncherIsUndone) {
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (cores < 2) GTEST_SKIP() << "this machine has one core";
  const auto bound = [&](const std::string& asked) {
    return run_program(
        {"/bin/sh", "-c",
         "export OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 "
         "OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 " +
             asked + "; exec taskset -c 0 '" + headroom().string() +
             "' train --data data.yaml --cfg yolov5n --noautoanchor "
             "--exist-ok"},
        folder_);
  };
  const std::string all = std::to_string(cores);
  const ProgramResult by_default = bound("");
  EXPECT_EQ(by_default.exit_code, 0) << by_default.err;
  EXPECT_THAT(by_default.err, HasSubstr("mpirun bound its processes to 1 of " +
                                        all + " cores by default: undone"));
  EXPECT_THAT(by_default.err, HasSubstr("rank 0 of 1, threads " + all + "\n"));
  const ProgramResult asked = bound("OMPI_MCA_hwloc_base_binding_policy=core");
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.err, Not(HasSubstr("undone")));
  EXPECT_THAT(asked.err, HasSubstr("rank 0 of 1, threads 1\n"));
}

// Checks which files remain in the folder for temporary files and in shared
// memory.
class Leftovers : public Operation {
 protected:
  void SetUp() override {
    Operation::SetUp();
    temporary_ = folder_ / "tmp";
    fs::create_directories(temporary_);
    setenv("TMPDIR", temporary_.c_str(), 1);
  }
  void TearDown() override {
    Operation::TearDown();
    unsetenv("TMPDIR");
  }

  static std::set<std::string> names_in(const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) {
      names.insert(entry.path().filename());
    }
    return names;
  }

  fs::path temporary_;
  const std::set<std::string> shared_memory_ = names_in("/dev/shm");
};

TEST_F(Leftovers, NoneAreLeftAndFoldersOfTheUserStay) {
  for (const char* name :
       {"headroom-log-mine00", "headroom-new-mine00", "headroom-0-mine"}) {
    fs::create_directories(temporary_ / name);
    std::ofstream(temporary_ / name / "notes.txt") << "mine";
  }
  const std::set<std::string> mine = names_in(temporary_);
  EXPECT_EQ(run_train().exit_code, 0);
  EXPECT_EQ(names_in(temporary_), mine);
  // After SIGKILL of the main process, the kernel kills the other processes.
  started("slow", "rank 0 of 2", {"--processes", "2"}).reset();
  expect_nobody_left();
  unsetenv("FAKE_WORKER");
  EXPECT_EQ(run_train().exit_code, 0);
  EXPECT_EQ(names_in(temporary_), mine);
  EXPECT_EQ(names_in("/dev/shm"), shared_memory_);
}

TEST_F(Operation, TwoRunsOfOneNameAtTheSameTimeGetTwoFolders) {
  let_workers("slow");
  for (const char* name : {"first", "second"}) {
    fs::create_directories(folder_ / name);
  }
  std::vector<std::string> command =
      train({"--project", (folder_ / "runs").string(), "--name", "mine"});
  for (std::string& word : command) {
    if (word == "data.yaml") word = (folder_ / word).string();
  }
  Program first(command, folder_ / "first");
  Program second(command, folder_ / "second");
  const std::vector<fs::path> logs = {folder_ / "runs/mine/coordinator.log",
                                      folder_ / "runs/mine2/coordinator.log"};
  for (const fs::path& log : logs) {
    EXPECT_TRUE(eventually([&] { return fs::exists(log); })) << log;
  }
  for (Program* run : {&first, &second}) interrupted(*run);
}

// After a silence, the agent abandons its worker, as the coordinator does, and
// starts another one. The case of two machines, where a heartbeat must wait for
// the connection, is tested in tests/integration/two_nodes_test.
TEST_F(Operation, AfterASilenceAnAgentsMessagesAreAcceptedAgain) {
  let_workers("slow");
  const std::string certs = (folder_ / "certs").string();
  ASSERT_EQ(run_headroom({"coordinator", "--init-certs", certs}).exit_code, 0);
  const Program coordinator(
      {headroom(), "coordinator", "--data", (folder_ / "data.yaml").string(),
       "--cfg", "yolov5n", "--listen", "127.0.0.1:0", "--certs", certs},
      folder_);
  const std::string mark = "listening on ";
  ASSERT_TRUE(wait_for(mark));
  std::string address = standard_error();
  address = address.substr(address.find(mark) + mark.size());
  coordinator::CuttableWire wire(address.substr(0, address.find('\n')));
  fs::create_directories(folder_ / "agent");
  const Program agent(
      {headroom(), "agent", "--coordinator", wire.address(), "--certs", certs},
      folder_ / "agent");
  ASSERT_TRUE(wait_for("generation 1"));
  wire.set_silent(true);
  wire.cut();  // as if keep-alive closed the connections
  wire.mend();
  ASSERT_TRUE(wait_for("agent_silent"));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  wire.set_silent(false);
  const auto healed = std::chrono::steady_clock::now();
  EXPECT_TRUE(wait_for("generation 2: ")) << standard_error();
  EXPECT_LT(std::chrono::steady_clock::now() - healed, std::chrono::seconds(5));
}

TEST_F(Operation, LinesOfAllProcessesAreInTheRunsFolder) {
  fs::create_directories(folder_ / "runs/train/exp/weights");
  const ProgramResult run = run_train({"--processes", "2", "--exist-ok"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  char host[256] = "";
  ASSERT_EQ(gethostname(host, sizeof host), 0);
  const fs::path logs = folder_ / "runs/train/exp/logs";
  int warnings = 0, events = 0;
  for (const Json& record : testing::read_lines(
           logs / ("workers-" + std::string(host) + "-0.jsonl"))) {
    if (record.at("level") == "warning") ++warnings;
    EXPECT_THAT(record.at("process").get<std::string>(), HasSubstr("worker "));
  }
  for (const Json& record : testing::read_lines(logs / "coordinator.jsonl")) {
    events += record.at("message") == "run_over: all 12 steps done";
  }
  EXPECT_EQ(warnings, 2) << "each worker says one";
  EXPECT_EQ(events, 1);
}

}  // namespace
}  // namespace headroom::cli
