// CardFailures: cards of workers that failed, and which of them are left out.
//
//   a card fails            its worker is lost and gets a successor there
//   it fails again within   the card is left out: no worker is started on it
//   so many steps           any more, and the run goes on with the others
//   it is no longer listed  left out at once
//   others fail within 5 s  consequences of the first loss (a card can leave
//   of the generation's     errors on cards that exchange with it): workers are
//   first loss              lost, but no failure is counted against their cards
//
// Which loss is the first is decided by the order in which reports arrive.
//
// Pure: steps and times are arguments.
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

// Failures so soon after a generation's first loss are its consequences.
inline constexpr std::chrono::milliseconds kCardCascade =
    std::chrono::seconds(5);

struct CardFailure {
  CardFault fault;
  std::string worker_id;
  std::string node_id;  // this and the next: the worker's slot
  int local_slot = 0;
  std::string hostname;
  int64_t step = 0;  // committed steps of the run when it failed
  // The decision.
  bool is_charged = false;  // counts against the card
  bool is_left_out = false;
  std::string reason;  // why it is left out, for people
};

// The loss that came first in the present generation.
struct FirstLoss {
  std::string worker_id;
  int rank = 0;
  TimePoint time;
};

struct CardDecision {
  bool begins_event = true;  // false: a consequence of another loss
  bool is_charged = false;
  bool is_left_out = false;
  std::string what_follows;  // what happens next, for people
};

// `before`: earlier failures. `within_steps`: a second failure of a card within
// so many steps leaves it out.
CardDecision decide_card_failure(TimePoint now,
                                 const std::vector<CardFailure>& before,
                                 const CardFailure& failure,
                                 const std::optional<FirstLoss>& first_loss,
                                 int64_t within_steps);

class CardFailures {
 public:
  // Decides and remembers. Nothing for a worker that has reported already.
  std::optional<CardDecision> note(TimePoint now, CardFailure failure,
                                   const std::optional<FirstLoss>& first_loss,
                                   int64_t within_steps);

  // The slot's newest failure; null before the first.
  const CardFailure* newest_of(const std::string& node_id,
                               int local_slot) const;
  // Why no worker is started in that slot any more; nothing if one may be.
  std::optional<std::string> no_successor(const std::string& node_id,
                                          int local_slot) const;
  // The failure that left each card out, in order.
  std::vector<CardFailure> left_out() const;
  // The UUIDs of those cards, where the driver gave one.
  std::set<std::string> left_out_uuids() const;
  // "; left out: NVIDIA H100 (GPU-…) on h", or "".
  std::string left_out_text() const;

  const std::vector<CardFailure>& all() const { return failures_; }
  void restore(std::vector<CardFailure> failures) {
    failures_ = std::move(failures);
  }

 private:
  // Oldest first. Grows with every failure that may still count, by at most two
  // for each slot between two that do not.
  std::vector<CardFailure> failures_;
};

}  // namespace headroom::coordinator
