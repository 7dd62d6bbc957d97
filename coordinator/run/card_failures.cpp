#include "coordinator/run/card_failures.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::coordinator {
namespace {

bool is_same_slot(const CardFailure& a, const CardFailure& b) {
  return a.node_id == b.node_id && a.local_slot == b.local_slot;
}

// Without a UUID, the slot identifies the card.
bool is_same_card(const CardFailure& a, const CardFailure& b) {
  const std::string& uuid = a.fault.card.uuid;
  const bool has_uuid = !uuid.empty() || !b.fault.card.uuid.empty();
  return has_uuid ? uuid == b.fault.card.uuid : is_same_slot(a, b);
}

constexpr const char* kLeftOut =
    ": it is left out, and no worker is started on it";

CardDecision leave_out(bool begins_event, bool is_charged,
                       const std::string& why) {
  return {begins_event, is_charged, /*is_left_out=*/true, why + kLeftOut};
}

}  // namespace

CardDecision decide_card_failure(TimePoint now,
                                 const std::vector<CardFailure>& before,
                                 const CardFailure& failure,
                                 const std::optional<FirstLoss>& first_loss,
                                 int64_t within_steps) {
  if (failure.fault.kind == CardFault::Kind::kLeftOut) {
    return leave_out(false, false, "it was left out before");
  }
  if (failure.fault.kind == CardFault::Kind::kGone) {
    return leave_out(true, true, "its driver no longer lists it");
  }
  if (failure.fault.kind == CardFault::Kind::kWrong) {
    return leave_out(true, true, "it computes wrong");
  }
  const bool is_known =
      std::ranges::any_of(before, [&](const CardFailure& one) {
        return one.is_left_out && is_same_card(one, failure);
      });
  if (is_known) return leave_out(true, true, "it was left out before");
  if (first_loss && first_loss->worker_id != failure.worker_id &&
      now - first_loss->time <= kCardCascade) {
    const auto seconds =
        std::chrono::duration<double>(now - first_loss->time).count();
    return {.begins_event = false,
            .what_follows =
                cat(fixed_text(seconds, 1), " s after rank ", first_loss->rank,
                    " was lost, and taken for a consequence: its "
                    "worker is started again")};
  }
  std::vector<int64_t> steps;  // steps of the card's recent failures
  for (const CardFailure& one : before) {
    if (one.is_charged && is_same_card(one, failure) &&
        failure.step - one.step <= within_steps) {
      steps.push_back(one.step);
    }
  }
  if (steps.empty()) {
    return {.begins_event = true,
            .is_charged = true,
            .what_follows =
                "its worker is started again; a second failure of "
                "this card within " +
                counted(within_steps, "step") + " leaves it out"};
  }
  return leave_out(true, true,
                   cat("it failed after ", steps.back(), " and after ",
                       counted(failure.step, "step"), ", twice within ",
                       counted(within_steps, "step")));
}

std::optional<CardDecision> CardFailures::note(
    TimePoint now, CardFailure failure,
    const std::optional<FirstLoss>& first_loss, int64_t within_steps) {
  const auto known =
      std::ranges::find(failures_, failure.worker_id, &CardFailure::worker_id);
  if (known != failures_.end()) return std::nullopt;
  const CardDecision decision =
      decide_card_failure(now, failures_, failure, first_loss, within_steps);
  failure.is_charged = decision.is_charged;
  failure.is_left_out = decision.is_left_out;
  failure.reason = failure.fault.words + "; " + decision.what_follows;
  // Remove the slot's failures that are too old to count.
  std::erase_if(failures_, [&](const CardFailure& one) {
    return is_same_slot(one, failure) && !one.is_left_out &&
           (!one.is_charged || failure.step - one.step > within_steps);
  });
  failures_.push_back(std::move(failure));
  return decision;
}

const CardFailure* CardFailures::newest_of(const std::string& node_id,
                                           int local_slot) const {
  for (const CardFailure& one : failures_ | std::views::reverse) {
    if (one.node_id == node_id && one.local_slot == local_slot) return &one;
  }
  return nullptr;
}

std::optional<std::string> CardFailures::no_successor(
    const std::string& node_id, int local_slot) const {
  const CardFailure* const newest = newest_of(node_id, local_slot);
  if (newest == nullptr) return std::nullopt;
  for (const CardFailure& one : failures_) {
    if (one.is_left_out && is_same_card(one, *newest)) {
      return "its card " + to_string(newest->fault.card) + " is left out";
    }
  }
  return std::nullopt;
}

std::vector<CardFailure> CardFailures::left_out() const {
  std::vector<CardFailure> cards;
  for (const CardFailure& failure : failures_) {
    const bool is_first = std::ranges::none_of(
        cards,
        [&](const CardFailure& one) { return is_same_card(one, failure); });
    if (failure.is_left_out && is_first) cards.push_back(failure);
  }
  return cards;
}

std::set<std::string> CardFailures::left_out_uuids() const {
  std::set<std::string> uuids;
  for (const CardFailure& failure : left_out()) {
    uuids.insert(failure.fault.card.uuid);
  }
  uuids.erase("");
  return uuids;
}

std::string CardFailures::left_out_text() const {
  const std::vector<CardFailure> cards = left_out();
  if (cards.empty()) return "";
  return "; left out: " + first_of(cards, 3, [](const CardFailure& one) {
           return to_string(one.fault.card) + " on " + one.hostname;
         });
}

}  // namespace headroom::coordinator
