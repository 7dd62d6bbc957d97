// Tests the device settings that workers get, for every way of starting a run:
// with cards, without cards, and with requested cards that do not exist.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/deploy/cli/supervision.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramResult;
using testing::run_program;

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(
      ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(socket);
  return ntohs(address.sin_port);
}

// Each launcher starts two workers in its own way, with "$@" as the run's
// flags. $HEADROOM, $TRAIN (train with a data set and a model) and $PORT are
// replaced.
struct Launcher {
  std::string name;
  std::string script;
};

// Runs two processes in the background. The exit code is 0, or that of the last
// process that failed.
std::string two(const std::string& process) {
  return "pids=; for i in 0 1; do " + process +
         " & pids=\"$pids $!\"; done; code=0; for p in $pids; do wait $p || "
         "code=$?; done; exit $code";
}

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {"Alone", "exec $TRAIN --processes 2 \"$@\""},
      {"AgentsByHand",
       "$HEADROOM coordinator $DATA --listen 127.0.0.1:$PORT "
       "--expected-workers 2 \"$@\" & run=$!; for i in 0 1; do $HEADROOM agent "
       "--coordinator 127.0.0.1:$PORT & done; code=0; wait $run || code=$?; "
       "wait; exit $code"},
      {"Mpirun",
       "exec mpirun -np 2 "
       "--oversubscribe --allow-run-as-root $TRAIN --processes 1 \"$@\""},
      {"Srun",
       two("SLURM_PROCID=$i SLURM_NODEID=0 SLURM_LOCALID=$i SLURM_STEP_ID=0 "
           "SLURM_JOB_ID=4711 SLURM_NTASKS=2 SLURM_STEP_TASKS_PER_NODE=2 "
           "$TRAIN --rendezvous . --processes 1 \"$@\"")},
      {"Pmi", two("PMI_RANK=$i PMI_SIZE=2 MPI_LOCALNRANKS=2 MPI_LOCALRANKID=$i "
                  "$TRAIN --coordinator 127.0.0.1:$PORT --processes 1 \"$@\"")},
  };
  return all;
}

class LaunchDevices : public testing::Supervision,
                      public ::testing::WithParamInterface<size_t> {
 protected:
  void SetUp() override {
    Supervision::SetUp();
    if (launchers()[GetParam()].name == "Mpirun" &&
        system("command -v mpirun >/dev/null") != 0) {
      GTEST_SKIP() << "there is no mpirun here";
    }
    // headroom queries the worker program for devices; here this is the fake
    // worker.
    setenv("HEADROOM_DEVICE_PLUGIN", "/none", 1);
    let_workers("told");
    setenv("HEADROOM", headroom().c_str(), 1);
    const std::string data = "--data " + (folder_ / "data.yaml").string() +
                             " --cfg yolov5n --noautoanchor";
    setenv("DATA", data.c_str(), 1);
    setenv("TRAIN", (headroom().string() + " train " + data).c_str(), 1);
    setenv("PORT", std::to_string(free_port()).c_str(), 1);
  }
  void TearDown() override {
    for (const char* name : {"HEADROOM", "DATA", "TRAIN", "PORT"}) {
      unsetenv(name);
    }
    Supervision::TearDown();
  }

  ProgramResult start(int devices,
                      const std::vector<std::string>& flags = {}) const {
    setenv("FAKE_DEVICES", std::to_string(devices).c_str(), 1);
    return run_program(
        testing::joined({"sh", "-c", launchers()[GetParam()].script, "sh"},
                        flags),
        folder_);
  }
};

using EachLauncher = LaunchDevices;

TEST_P(EachLauncher, CardsAreUsedWhereTheyAre) {
  const ProgramResult run = start(2);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("2 x Fake H100, bf16"));
  const std::string told =
      " was told device all, precision bf16, backend nccl, card ";
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(run.err, HasSubstr("rank " + rank + told));
    EXPECT_THAT(run.err, HasSubstr(told + rank + " GPU-" + rank));
    // Without a launcher, the ranks of agents depend on the order in which they
    // register.
    if (launchers()[GetParam()].name == "AgentsByHand") continue;
    EXPECT_THAT(run.err, HasSubstr("rank " + rank + told + rank));
  }
}

TEST_P(LaunchDevices, WithoutCardsTheRunIsOnTheCpu) {
  const ProgramResult run = start(0);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("CPU, fp32"));
  for (const std::string rank : {"0", "1"}) {
    EXPECT_THAT(run.err, HasSubstr("rank " + rank +
                                   " was told device cpu, precision fp32, "
                                   "backend gloo, card of its own choice"));
  }
  EXPECT_THAT(run.err, Not(HasSubstr("idle")));
}

TEST_P(LaunchDevices, RequestedCardsThatAreAbsentAreRefused) {
  const ProgramResult run = start(0, {"--device", "all"});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("[device] --device all asks for cards, and "));
  EXPECT_THAT(run.err, HasSubstr(" has none: the pretender shows none: use "
                                 "--device cpu, or nodes with cards"));
  EXPECT_THAT(run.err, Not(HasSubstr("was told")));
}

TEST_P(LaunchDevices, TheCpuBesideIdleCardsGivesAWarning) {
  const ProgramResult run = start(2, {"--device", "cpu"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("rank 1 was told device cpu, precision fp32"));
  EXPECT_THAT(run.err,
              HasSubstr("the run is on the CPU, and 2 x Fake H100 are idle: "
                        "--device auto uses them"));
}

TEST_P(LaunchDevices, FewerCardsThanWorkersAreRefused) {
  const ProgramResult run = start(1);
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_THAT(run.err, HasSubstr("starts 2 workers, and has 1 card for them: "
                                 "0 (Fake H100): give --processes 1"));
}

std::string launcher_name(const ::testing::TestParamInfo<size_t>& info) {
  return launchers()[info.param].name;
}

INSTANTIATE_TEST_SUITE_P(, EachLauncher,
                         ::testing::Range(size_t{0}, launchers().size()),
                         launcher_name);
INSTANTIATE_TEST_SUITE_P(, LaunchDevices, ::testing::Values(0, 2),
                         launcher_name);
INSTANTIATE_TEST_SUITE_P(Slow, LaunchDevices, ::testing::Values(1, 3, 4),
                         launcher_name);

using AloneOnCards = testing::Supervision;

TEST_F(AloneOnCards, AWorkerACardIsTheDefaultAndOlderCardsCheckFloat16First) {
  setenv("HEADROOM_DEVICE_PLUGIN", "/none", 1);
  let_workers("told");
  setenv("FAKE_DEVICES", "4", 1);
  setenv("FAKE_CAPABILITY", "75", 1);
  const ProgramResult run = run_train();
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("4 x Fake H100, fp16, processes 4 x "));
  EXPECT_THAT(run.err,
              HasSubstr("is not known to have tensor cores; the loss is "
                        "scaled; one step is checked first"));
  EXPECT_THAT(run.err,
              HasSubstr("rank 3 was told device all, precision fp16, backend "
                        "nccl, card 3 GPU-3"));
}

}  // namespace
}  // namespace headroom::cli
