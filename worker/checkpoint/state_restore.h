// Restores a state from the snapshots that the ranks of a new generation hold
// together, into the new layout.
//
//   offers   every rank lists the ranges of layers that it holds, and the step
//            of each
//   choice   a pure function finds the newest step that is complete
//   fetch    rank 0 receives the ranges that it lacks, each of them once
//   share    rank 0 sends each layer to the ranks that need it (state_stream.h)
//
// The restored state equals the state that the ranks held, bit for bit,
// whatever the two layouts are. Rank 0 needs host memory for the whole state
// during the call.
//
// Collective. Errors: CommunicationError, as thrown by the communicator.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/checkpoint/host_state_snapshot.h"
#include "worker/step/training_state.h"

namespace headroom::checkpoint {

// A range of a layer that a rank holds, or that a state needs.
struct HeldRange {
  std::string buffer;
  int64_t layer = 0;
  int64_t begin = 0;
  int64_t size = 0;
  bool operator==(const HeldRange&) const = default;
};

struct StateOffer {
  int rank = 0;
  int64_t index = 0;  // number of the snapshot on that rank
  int64_t step = 0;   // committed steps
  std::vector<HeldRange> ranges;
};

// A range of the offer that rank `rank` made for snapshot `index`.
struct StatePiece {
  int rank = 0;
  int64_t index = 0;
  int64_t range = 0;  // index in the offer's ranges
};

struct RestoreChoice {
  int64_t step = 0;
  std::vector<StatePiece> pieces;  // together cover all needed ranges
};

// Returns the newest complete step; nullopt if no step is complete. If several
// ranks hold the same range, the lowest of these ranks is chosen.
std::optional<RestoreChoice> choose_state(
    const std::vector<HeldRange>& needed,
    const std::vector<StateOffer>& offers);

struct RestoredState {
  int64_t committed_steps = 0;
  std::string newest_line;
};

// Fills `state`, counters included. If the ranks do not hold a complete state
// of at least `at_least` steps, leaves `state` unchanged and returns nullopt.
std::optional<RestoredState> restore_state(
    const std::vector<HostStateSnapshot>& held, step::TrainingState& state,
    int64_t at_least);

}  // namespace headroom::checkpoint
