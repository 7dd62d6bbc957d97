// The cells of the kill matrix: which process of a run is killed, and during
// which phase.
//
//   a worker       kills itself in the middle of the phase (--inject kill@…)
//   others         are killed from outside while a rank waits in the
//                  middle of the phase (--inject pause@…)
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {

constexpr int kKillSteps = 8;  // 37 images in batches of 8: an epoch is 5 steps

// The process that the test kills. kNobody: a worker kills itself. kOnlyAgent:
// the only agent, whose workers save the state before they end.
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

  // True if there are two agents with one worker each, false if one agent has
  // all workers.
  bool has_two_agents() const {
    return victim == Victim::kAgent || victim == Victim::kLostAgent;
  }
};

void PrintTo(const Kill& kill, std::ostream* out);
std::string name_of_kill(const ::testing::TestParamInfo<Kill>& info);

// The command of the run. If each agent has one process, the command has no
// layout flags.
std::vector<std::string> command_of(const Kill& kill);

// The steps of a run with the same layout and without faults, made once per
// program.
const std::vector<Json>& undisturbed(const Kill& kill);

// The text for --inject, such as "kill@rank=0,step=4,phase=vote".
std::string fault_at(const std::string& kind, int rank, int step,
                     const std::string& phase);

// A kill of a worker. Between generations, it is a kill of the successor of the
// worker that ended the first generation, before this successor has received
// any state.
Kill kill_of_worker(const std::string& name,
                    const std::vector<std::string>& layout, int rank,
                    const std::string& phase);

// A kill of another process, while `rank` is in the given phase; between
// generations, while the other rank is in that phase.
Kill kill_of_other(const std::string& name, Victim victim, int rank,
                   const std::string& phase);

std::vector<Kill> all_kills();

}  // namespace headroom::testing
