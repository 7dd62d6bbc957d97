// CardFailures: records the failures of workers' cards, and decides which cards
// the run stops using ("leaves out").
//
//   a card fails            its worker is lost; its slot gets a new worker
//   it fails again within   the card is left out: no further worker is started
//   `within_steps`          on it, and the run continues on the other cards
//   the driver no longer    left out at once
//   lists it, or it
//   computes wrong
//   others fail within 5 s  treated as consequences of the first loss (a lost
//   of the generation's     card can cause errors on cards that exchange data
//   first loss              with it): workers are lost, no card is charged
//
// The first loss is the loss whose report arrived first; it need not be the
// true cause. Pure: steps and times are arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/run/clock.h"
#include "parallel/base/card.h"

namespace headroom::coordinator {

// A failure this soon after a generation's first loss counts as a consequence
// of that loss. A larger value blames fewer cards wrongly, and misses more real
// failures.
inline constexpr std::chrono::milliseconds kCardCascade =
    std::chrono::seconds(5);

struct CardFailure {
  CardFault fault;
  std::string worker_id;
  std::string node_id;  // node_id and local_slot identify the slot
  int local_slot = 0;
  std::string hostname;
  int64_t step = 0;  // the run's committed steps when the card failed
  // The decision about this failure.
  bool is_charged = false;  // the failure counts against the card
  bool is_left_out = false;
  std::string reason;  // a text for messages: why the card is left out
};

// The first loss in the current generation.
struct FirstLoss {
  std::string worker_id;
  int rank = 0;
  TimePoint time;
};

struct CardDecision {
  bool begins_event = true;  // false if it is a consequence of another loss
  bool is_charged = false;
  bool is_left_out = false;
  std::string what_follows;  // a text for messages: what happens next
};

// Decides one failure. `before`: earlier failures. A card is left out if it
// fails twice within `within_steps` committed steps.
CardDecision decide_card_failure(TimePoint now,
                                 const std::vector<CardFailure>& before,
                                 const CardFailure& failure,
                                 const std::optional<FirstLoss>& first_loss,
                                 int64_t within_steps);

class CardFailures {
 public:
  // Decides and records a failure. Returns no value if this worker's failure is
  // recorded already (the worker repeated the call).
  std::optional<CardDecision> note(TimePoint now, CardFailure failure,
                                   const std::optional<FirstLoss>& first_loss,
                                   int64_t within_steps);

  // Returns the slot's newest failure, or nullptr if there is none.
  const CardFailure* newest_of(const std::string& node_id,
                               int local_slot) const;
  // Returns why the slot gets no further worker; no value if it may get one.
  std::optional<std::string> no_successor(const std::string& node_id,
                                          int local_slot) const;
  // The failures that left a card out, one per card, oldest first.
  std::vector<CardFailure> left_out() const;
  // The UUIDs of the left-out cards for which the driver gave a UUID.
  std::set<std::string> left_out_uuids() const;
  // "; left out: NVIDIA H100 (GPU-…) on h", or "".
  std::string left_out_text() const;

  const std::vector<CardFailure>& all() const { return failures_; }
  void restore(std::vector<CardFailure> failures) {
    failures_ = std::move(failures);
  }

 private:
  // The failures, oldest first. note() drops a slot's failures that cannot
  // count any more, so the list grows only with failures that still count.
  std::vector<CardFailure> failures_;
};

}  // namespace headroom::coordinator
