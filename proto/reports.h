// What agents and workers say to the coordinator, and what it answers, as plain
// values: both ends use these, and proto/convert.h puts them into messages and
// takes them out again. Files with tensors may include this one.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/card.h"
#include "parallel/base/memory_shortfall.h"
#include "parallel/plan/plan.h"

namespace headroom::wire {

// --- agents -----------------------------------------------------------------

// One agent and the worker slots it will start.
struct NodeRegistration {
  std::string node_id = {};   // unique per agent process
  std::string hostname = {};  // agents of one machine share it
  int launcher_rank = 0;      // place under mpirun or srun; 0 locally
  std::vector<std::string> worker_ids =
      {};  // unique per process, in local order
};

// The run that a registered node takes part in.
struct RegisteredRun {
  std::string run_digest = {};
  std::string run_config_yaml = {};
  std::string run_directory = {};  // absolute
};

// A worker that has ended.
struct WorkerExit {
  std::string node_id = {};
  std::string worker_id = {};
  int exit_code = 0;            // 128 + signal when one killed it
  std::string last_words = {};  // the end of its stderr
};

// Whether an agent starts a successor of a worker that has ended.
struct SuccessorOrder {
  bool restart = false;
  std::chrono::milliseconds delay{0};
  std::string reason = {};
};

// --- workers ----------------------------------------------------------------

// One rank's place in a generation, and what it trains.
struct RankAssignment {
  int rank = 0;
  // Its place among all workers of its machine, lost ones included: those that
  // are left keep their cards. May be local_world_size or more.
  int local_rank = 0;
  int local_world_size = 1;  // those of this generation
  int world_size = 1;
  bool has_one_agent = false;  // all ranks have the same one
  plan::Plan plan = {};
  std::string run_config_yaml = {};
  std::string run_directory = {};
  // A checkpoint of the run directory to go on from, and the steps that it has;
  // "": as the configuration says.
  std::string resume_checkpoint = {};
  int64_t resume_steps = 0;
  // UUIDs of cards on which no worker is to run.
  std::vector<std::string> left_out_cards = {};
  // UUID of the card on which this worker's predecessor failed: the worker
  // takes that one, whatever number it has by now. "": the one of its place.
  std::string card_uuid = {};
};

// Why a worker cannot go on, and what it still has.
struct WorkerFailure {
  int exit_code = 0;
  std::string message = {};
  bool peer_lost = false;  // the cause is a lost peer, not this worker
  int64_t committed_steps = 0;
  // Holds a part of the state, which it cannot save alone.
  bool holds_a_part = false;
  // Steps of the newest checkpoint that it knows of; 0: none.
  int64_t checkpoint_steps = 0;
  // Set where its card is the reason: the worker ends, and is succeeded.
  std::optional<headroom::CardFault> card_fault = {};
};

// A worker has left its generation at a committed step: because it was asked
// to, and keeps its state; or because a step ran out of memory where nothing
// leaner was left, and the state is in a checkpoint.
struct LeftGeneration {
  bool was_asked = false;
  int64_t committed_steps = 0;
  // The worker holds only a part of the state.
  bool holds_a_part = false;
  int64_t checkpoint_steps = 0;
  // The next four fields are set when memory ran out.
  std::string checkpoint = {};   // its folder
  std::string result_json = {};  // summary.json's content, if rank 0 reports
  int failed_rank = 0;           // the lowest that had nothing leaner left
  MemoryShortfall shortfall = {};
};

// Rank 0: the run has ended as it should. Whoever was told to save: the state
// after `step` steps is saved.
struct FinishedRun {
  int exit_code = 0;  // 0, or 130 and 5 with what to do in reason
  std::string reason = {};
  std::string result_json = {};  // summary.json's content
  int64_t step = 0;
  bool says_how_to_go_on = false;  // `reason` has the command that resumes it
};

}  // namespace headroom::wire
