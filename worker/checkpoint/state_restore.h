// Restores the state that the ranks of a new generation hold together, under
// its layout.
//
//   offers   every rank says which ranges of which layers it holds, after which
//            step
//   choice   a pure function finds the newest step that is complete
//   fetch    rank 0 gets what it does not hold itself, each range once
//   share    layer by layer to whoever needs it (state_stream.h)
//
// The bits are those of the held state, whatever the layouts. Rank 0 needs host
// memory for the whole state meanwhile.
//
// Collective; CommunicationError as the communicator.
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
  int64_t index = 0;  // the state's number on that rank
  int64_t step = 0;   // committed steps
  std::vector<HeldRange> ranges;
};

// One range of one offer.
struct StatePiece {
  int rank = 0;
  int64_t index = 0;
  int64_t range = 0;  // the range's place in the offer
};

struct RestoreChoice {
  int64_t step = 0;
  std::vector<StatePiece> pieces;  // together everything that is needed
};

// Returns nothing if no step is complete. Of equal ranges it takes the lowest
// rank's.
std::optional<RestoreChoice> choose_state(
    const std::vector<HeldRange>& needed,
    const std::vector<StateOffer>& offers);

struct RestoredState {
  int64_t committed_steps = 0;
  std::string newest_line;
};

// Fills `state`, counters included. Returns nothing, and leaves it unchanged,
// where the ranks do not hold a whole state of at least `at_least` steps.
std::optional<RestoredState> restore_state(
    const std::vector<HostStateSnapshot>& held, step::TrainingState& state,
    int64_t at_least);

}  // namespace headroom::checkpoint
