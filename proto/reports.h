// The reports of agents and workers to the coordinator, and its replies, as
// plain structs. Both ends use them; proto/convert.h converts them to and from
// messages. Files that include torch may include this one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/card.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/memory_shortfall.h"
#include "parallel/plan/plan.h"

namespace headroom::wire {

// --- agents -----------------------------------------------------------------

// A card on which an agent's workers could compute.
struct NodeCard {
  int index = 0;  // CUDA's device number in the agent's environment
  std::string uuid = {};
  // Address on the PCI bus, "0000:3b:00.0"; "" if unknown.
  std::string bus_address = {};
  std::string name = {};
  int compute_capability = 0;  // 90 for 9.0; 0 if unknown
  int64_t total_bytes = 0;
  // Why no process may start to compute on it, and what to do; "" if usable.
  std::string trouble = {};
  bool operator==(const NodeCard&) const = default;
};

// One agent and the worker slots it will start.
struct NodeRegistration {
  std::string node_id = {};   // unique per agent process
  std::string hostname = {};  // agents of one machine share it
  int launcher_rank = 0;      // rank under mpirun or srun; 0 locally
  // One id for each worker process, in the order of slots.
  std::vector<std::string> worker_ids = {};
  std::vector<NodeCard> cards = {};
  // Why the agent has no card. If `cards` is empty and this is "", the agent
  // did not look for cards.
  std::string no_card_reason = {};
  // Cards that the driver lists but no worker can use, and why; "" if none.
  std::string unusable_cards = {};
  int launcher_size = 0;  // agents started by mpirun or srun; 0 if none
  // Number of workers of earlier agents, in the launcher's order, on the same
  // machine.
  int first_local_slot = 0;
};

// --- workers ----------------------------------------------------------------

// A rank's assignment in a generation, and the run it trains.
struct RankAssignment {
  int rank = 0;
  // Index among all workers of its machine, lost ones included, so that the
  // remaining ones keep their cards. May be local_world_size or more.
  int local_rank = 0;
  int local_world_size = 1;  // workers of its machine in this generation
  int world_size = 1;
  bool has_one_agent = false;  // all ranks have the same agent
  // All workers had the same ranks and plan in the previous generation, and
  // keep their state, loaders and caches.
  bool keeps_state = false;
  plan::Plan plan = {};
  std::string run_config_yaml = {};
  std::string run_directory = {};
  // The checkpoint in the run directory to continue from, and its number of
  // steps. "" means to start as the configuration defines.
  std::string resume_checkpoint = {};
  int64_t resume_steps = 0;
  // UUIDs of cards on which no worker may run.
  std::vector<std::string> left_out_cards = {};
  std::string node_id = {};  // this worker's agent; "" without a coordinator
  // Where the run's folder was written before this generation.
  headroom::FolderPlace folder = {};
  // UUID of the card on which this worker's predecessor failed: the worker uses
  // that card, even if its number has changed. "" means the card of its slot.
  std::string card_uuid = {};
};

// The consequence of a worker's failure for its run.
enum class FailureKind {
  kFatal,        // the worker and the run end
  kLostPeer,     // a peer is lost; the worker waits for the next generation
  kOutOfMemory,  // the worker also waits, and will retry using less memory
  kConnection,   // the worker also waits; its end of a connection failed
};

// Why a worker cannot continue, and the state it still has.
struct WorkerFailure {
  int exit_code = 0;
  std::string message = {};
  FailureKind kind = FailureKind::kFatal;
  // The worker ran out of memory, and will use less in its next attempt.
  bool is_leaner = false;
  // The worker's state is intact, so it can continue if all members can.
  bool can_go_on = false;
  int64_t recorded_epochs = 0;  // epochs whose results are written
  int64_t committed_steps = 0;
  // The worker has only a part of the state, and cannot save the state alone.
  bool holds_a_part = false;
  // Number of steps in the newest checkpoint that was reported to this worker;
  // 0 if there is no such checkpoint.
  int64_t checkpoint_steps = 0;
  // Set if the worker's card failed: the worker ends, and gets a successor.
  std::optional<headroom::CardFault> card_fault = {};
};

// A worker has left its generation at a committed step. Either it was asked to
// leave and keeps its state, or a step ran out of memory although the worker
// could not reduce its memory further, and the state is in a checkpoint.
struct LeftGeneration {
  bool was_asked = false;
  int64_t committed_steps = 0;
  // The worker has only a part of the state.
  bool holds_a_part = false;
  int64_t checkpoint_steps = 0;
  // Why the check of float16 failed before the first step: the next generation
  // must use float32. "" if there was no such check, or it passed.
  std::string float16_error = {};
  // The next four fields are set when memory ran out.
  std::string checkpoint = {};   // folder of the checkpoint
  std::string result_json = {};  // summary.json's content, if rank 0 reports
  int failed_rank = 0;  // lowest rank that could not reduce its memory further
  MemoryShortfall shortfall = {};
};

// From rank 0: the run has ended normally. From the worker that was ordered to
// save: the state after `step` steps is saved.
struct FinishedRun {
  int exit_code = 0;  // 0; or 130, 5 or 4, with advice in `reason`
  std::string reason = {};
  std::string result_json = {};  // summary.json's content
  int64_t step = 0;
  bool says_how_to_go_on = false;  // `reason` contains the resume command
};

}  // namespace headroom::wire
