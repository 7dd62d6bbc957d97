#include "tests/integration/kill_cells.h"

#include <map>

#include "tests/integration/disturbed_run.h"
#include "tests/integration/run_comparison.h"

namespace headroom::testing {
namespace {

constexpr const char* kPhases[] = {"forward", "backward",   "vote",
                                   "commit",  "checkpoint", "validation",
                                   "between"};

std::vector<std::string> command_without_layout() {
  std::vector<std::string> words = train_fp64("8");
  std::erase(words, "--noval");
  words.insert(words.end(), {"--max-steps", std::to_string(kKillSteps)});
  return words;
}

std::vector<std::string> command_with_layout(const Kill& kill) {
  std::vector<std::string> words = command_without_layout();
  words.insert(words.end(), kill.layout.begin(), kill.layout.end());
  return words;
}

std::string kill_at(int rank, int step, const std::string& phase) {
  return fault_at("kill", rank, step, phase);
}

std::string pause_at(int rank, int step, const std::string& phase) {
  return fault_at("pause", rank, step, phase) + ",seconds=2";
}

// The step in which the process is killed. Checkpoint and validation follow
// step 5, the last of the first epoch; for other phases it is a step within the
// epoch.
int step_of(const std::string& phase) {
  return phase == "checkpoint" || phase == "validation" ? 5 : 4;
}

}  // namespace

void PrintTo(const Kill& kill, std::ostream* out) { *out << kill.name; }

std::string name_of_kill(const ::testing::TestParamInfo<Kill>& info) {
  return info.param.name;
}

std::vector<std::string> command_of(const Kill& kill) {
  return kill.has_two_agents() ? command_without_layout()
                               : command_with_layout(kill);
}

const std::vector<Json>& undisturbed(const Kill& kill) {
  static std::map<std::vector<std::string>, std::vector<Json>> runs;
  auto& steps = runs[kill.layout];
  if (steps.empty()) {
    steps =
        train_in(fresh_folder() / "undisturbed", command_with_layout(kill), {});
  }
  return steps;
}

std::string fault_at(const std::string& kind, int rank, int step,
                     const std::string& phase) {
  return kind + "@rank=" + std::to_string(rank) +
         ",step=" + std::to_string(step) + ",phase=" + phase;
}

Kill kill_of_worker(const std::string& name,
                    const std::vector<std::string>& layout, int rank,
                    const std::string& phase) {
  const int step = step_of(phase);
  Kill kill{name + "_" + phase, layout, kill_at(rank, step, phase), step};
  if (phase == "between") {
    kill.faults =
        kill_at(rank, step, "forward") + ";" + pause_at(1 - rank, step, phase);
    kill.victim = Victim::kSuccessor;
  }
  return kill;
}

Kill kill_of_other(const std::string& name, Victim victim, int rank,
                   const std::string& phase) {
  const int step = step_of(phase);
  Kill kill{name + "_" + phase,
            {"--processes", "2"},
            pause_at(rank, step, phase),
            step,
            victim};
  if (phase == "between") {
    kill.faults =
        kill_at(rank, step, "forward") + ";" + pause_at(1 - rank, step, phase);
  }
  return kill;
}

std::vector<Kill> all_kills() {
  struct Worker {
    std::string name;
    std::vector<std::string> layout;
    int rank;
  };
  const std::vector<Worker> workers = {
      {"rank_0", {"--processes", "2"}, 0},
      {"rank_1", {"--processes", "2"}, 1},
      {"zero_3_rank_1", {"--layout", "data=2", "--zero", "3"}, 1},
      {"zero_2_rank_1", {"--layout", "data=2", "--zero", "2"}, 1},
      {"zero_1_rank_0", {"--layout", "data=2", "--zero", "1"}, 0},
      {"first_stage", {"--layout", "pipeline=2"}, 0},
      {"last_stage", {"--layout", "pipeline=2"}, 1},
      {"spatial_rank", {"--layout", "spatial=2"}, 1},
      {"yolov5nu_last_stage",
       {"--layout", "pipeline=2", "--cfg", "yolov5nu"},
       1},
      {"yolov8n_spatial_rank",
       {"--layout", "spatial=2", "--cfg", "yolov8n"},
       1}};
  std::vector<Kill> kills;
  for (const char* phase : kPhases) {
    for (const Worker& worker : workers) {
      kills.push_back(
          kill_of_worker(worker.name, worker.layout, worker.rank, phase));
    }
    kills.push_back(
        kill_of_other("coordinator", Victim::kCoordinator, 0, phase));
    kills.push_back(kill_of_other("agent_0", Victim::kAgent, 0, phase));
    kills.push_back(kill_of_other("lost_agent", Victim::kLostAgent, 1, phase));
    if (std::string(phase) == "between") continue;  // no worker trains then
    kills.push_back(kill_of_other("only_agent", Victim::kOnlyAgent, 0, phase));
  }
  // Rank 1 has left the generation because it is out of memory, but rank 0 has
  // not left yet.
  kills.push_back(
      {"coordinator_at_a_refusal",
       {"--processes", "2"},
       "oom@rank=1,step=4,allocation=100;" + pause_at(0, 4, "forward"),
       4,
       Victim::kCoordinator});
  // Rank 2 dies while the generation after the death of rank 1 is being formed.
  kills.push_back({"rank_2_between",
                   {"--processes", "3"},
                   kill_at(1, 4, "forward") + ";" + kill_at(2, 4, "between"),
                   4});
  return kills;
}

}  // namespace headroom::testing
