// The consequences of a failed card for the run: its worker is lost, and the
// slot gets no new worker if the card is left out.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/run/run_state.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"

namespace headroom::coordinator {
namespace {

std::string detail_json(const CardFailure& failure,
                        const CardDecision& decision) {
  const Card& card = failure.fault.card;
  return nlohmann::ordered_json(
             {{"card",
               {{"uuid", valid_utf8(card.uuid)},
                {"name", valid_utf8(card.name)},
                {"bus_address", valid_utf8(card.bus_address)}}},
              {"words", valid_utf8(failure.fault.words)},
              {"hostname", valid_utf8(failure.hostname)},
              {"worker_id", failure.worker_id},
              {"left_out", decision.is_left_out}})
      .dump();
}

}  // namespace

void RunState::card_failed(TimePoint now, const std::string& worker_id,
                           const wire::WorkerFailure& worker) {
  const Member* member = membership_.find(worker_id);
  if (member == nullptr || over() || !worker.card_fault) return;
  membership_.heartbeat_worker(now, worker_id);
  CardFailure failure;
  failure.fault = *worker.card_fault;
  // If the driver no longer lists the card, the worker reports only its UUID.
  const CardFailure* const before =
      cards_.newest_of(member->node_id, member->local_slot);
  if (before != nullptr && before->fault.card.uuid == failure.fault.card.uuid) {
    failure.fault.card = before->fault.card;
  }
  failure.worker_id = worker_id;
  failure.node_id = member->node_id;
  failure.local_slot = member->local_slot;
  failure.hostname = member->hostname;
  failure.step = std::max(progress_.step, worker.committed_steps);
  std::optional<FirstLoss> first_loss;
  if (ending_.loss) {
    first_loss = {ending_.loss->worker_id, ending_.loss->rank,
                  ending_.loss->time};
  }
  const std::optional<CardDecision> decision =
      cards_.note(now, failure, first_loss, config_.card_failure_steps);
  if (!decision) return;  // the worker repeated a call whose reply was lost
  const int rank = cycle_.rank_of(worker_id);
  const std::string card = to_string(failure.fault.card);
  const std::string what = failure.fault.words + "; " + decision->what_follows;
  if (decision->begins_event) {
    emit(EventKind::kCardFailure, rank,
         "card " + card + " of worker " + worker_id + " on " +
             failure.hostname + " after " + counted(failure.step, "step") +
             ": " + what,
         true, detail_json(failure, *decision));
  }
  if (worker.committed_steps > 0) {
    ending_.checkpoint_steps =
        std::max(ending_.checkpoint_steps,
                 std::optional<int64_t>(worker.checkpoint_steps));
  }
  if (membership_.leave(worker_id)) {
    given_up_.insert(worker_id);  // the agent ends the worker if necessary
    lose(now, loss_of(worker_id, "lost its card " + card + ": " + what,
                      /*explained=*/true));
  }
  advance(now);
}

bool RunState::end_without_cards(TimePoint now) {
  if (cards_.left_out().empty() || membership_.num_available() > 0 ||
      membership_.num_coming() > 0) {
    return false;
  }
  // A silent agent may return with workers.
  if (std::ranges::any_of(membership_.nodes(), &Node::silent)) return false;
  const std::string remedy =
      "no card is left: replace it, or name others with --device";
  if (ending_.loss) {
    ending_.loss->how += "; " + remedy;
  } else {
    ending_.first_complaint = remedy;
  }
  begin_stopping(now);
  return true;
}

}  // namespace headroom::coordinator
