// What agents and workers say to the coordinator, and what it answers, as plain
// values: both ends use these, and proto/convert.h puts them into messages and
// takes them out again. Files with tensors may include this one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/card.h"
#include "parallel/base/memory_shortfall.h"
#include "parallel/plan/plan.h"

namespace headroom::wire {

// --- agents -----------------------------------------------------------------

// A card that an agent's workers could compute on.
struct NodeCard {
  int index = 0;  // CUDA's number in the agent's environment
  std::string uuid = {};
  // Where it is on the PCI bus, "0000:3b:00.0"; "": not known.
  std::string bus_address = {};
  std::string name = {};
  int compute_capability = 0;  // 9.0 as 90; 0: not known
  int64_t total_bytes = 0;
  // Why no process may begin to compute on it, and what to do; "" if one may.
  std::string trouble = {};
  bool operator==(const NodeCard&) const = default;
};

// One agent and the worker slots it will start.
struct NodeRegistration {
  std::string node_id = {};   // unique per agent process
  std::string hostname = {};  // agents of one machine share it
  int launcher_rank = 0;      // place under mpirun or srun; 0 locally
  std::vector<std::string> worker_ids =
      {};  // unique per process, in local order
  std::vector<NodeCard> cards = {};
  // Why it has none; "" and no card: the agent did not look.
  std::string no_card_reason = {};
  // Cards that the driver has and no worker can use, and why; "": none.
  std::string unusable_cards = {};
  int launcher_size = 0;  // agents that mpirun or srun started; 0: none did
  // Workers of agents before it on its machine, by the launcher's numbers.
  int first_local_slot = 0;
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
  // All ranks had these places in the generation before, and go on with all
  // that they have: state, loaders, caches.
  bool keeps_state = false;
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

// What a failure of a worker means for its run.
enum class FailureKind {
  kFatal,        // the worker ends, and the run with it
  kLostPeer,     // a peer is lost; the worker waits for the next generation
  kOutOfMemory,  // it waits too, and tries its step again with leaner means
  kConnection,   // it waits too; its own end of a connection has failed
};

// Why a worker cannot go on, and what it still has.
struct WorkerFailure {
  int exit_code = 0;
  std::string message = {};
  FailureKind kind = FailureKind::kFatal;
  // Out of memory, and will need less of it next time.
  bool is_leaner = false;
  // It could go on with all that it has, if all members could.
  bool can_go_on = false;
  int64_t recorded_epochs = 0;  // whose results are written
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
