// The cells of the kill matrix: which process a run loses, and during which
// phase.
//
//   a worker       kills itself in the middle of the phase (--inject kill@…)
//   others         are killed from outside while a rank waits in the middle of
//                  the phase (--inject pause@…)
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

constexpr int kKillSteps = 8;  // 37 images in batches of 8: an epoch is 5 steps

// The process that the test kills; kNobody: a worker kills itself. kOnlyAgent:
// the agent of all workers, which save the state before they end.
enum class Victim {
  kNobody,
  kSuccessor,
  kCoordinator,
  kAgent,
  kLostAgent,
  kOnlyAgent
};

struct Kill {
  std::string name;
  std::vector<std::string> layout;
  std::string faults;
  // The run continues from this step, or from the one before.
  int first_step = 4;
  Victim victim = Victim::kNobody;

  // Two agents with a worker each, or one with all workers.
  bool has_two_agents() const {
    return victim == Victim::kAgent || victim == Victim::kLostAgent;
  }
};

void PrintTo(const Kill& kill, std::ostream* out);
std::string name_of_kill(const ::testing::TestParamInfo<Kill>& info);

// The command of the run, without the flags of the layout where each agent has
// one process.
std::vector<std::string> command_of(const Kill& kill);

// The steps of that layout's run without faults, made once per program.
const std::vector<Json>& undisturbed(const Kill& kill);

// For --inject: "kill@rank=0,step=4,phase=vote".
std::string fault_at(const std::string& kind, int rank, int step,
                     const std::string& phase);

// A kill between generations: of the successor of the worker that ended the
// first generation, before it has received any state.
Kill kill_of_worker(const std::string& name,
                    const std::vector<std::string>& layout, int rank,
                    const std::string& phase);

// Strikes while `rank` is in that phase; between generations while the other
// one is.
Kill kill_of_other(const std::string& name, Victim victim, int rank,
                   const std::string& phase);

std::vector<Kill> all_kills();

}  // namespace headroom::testing
