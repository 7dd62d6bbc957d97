#include "coordinator/log/run_state_snapshot.h"

#include <utility>
#include <vector>

#include "parallel/plan/network_rates.h"
#include "proto/convert.h"

// The functions are in the struct's namespace, so that argument-dependent
// lookup finds them.
namespace headroom::plan {

HEADROOM_FIELDS(NetworkRates, machines, interface, slowest_bytes_per_second,
                fastest_bytes_per_second, latency_seconds, is_sample)

}  // namespace headroom::plan

namespace headroom::coordinator {

constexpr MemberState last_of(MemberState) { return MemberState::kGone; }
constexpr LeavingCause last_of(LeavingCause) { return LeavingCause::kAsked; }
constexpr RunPhase last_of(RunPhase) { return RunPhase::kFailed; }

// --- membership ------------------------------------------------------------

HEADROOM_FIELDS(Node, node_id, hostname, launcher_rank, worker_ids, silent,
                cards, no_card_reason, slot_cards)
HEADROOM_FIELDS(Member, worker_id, node_id, hostname, launcher_rank, local_slot,
                state)
HEADROOM_FIELDS(RankedMember, worker_id, rank, local_rank, local_world_size)

void fields(auto& log, wire::Either<Generation> auto& generation) {
  log("number", generation.number);
  log("members", generation.members);
  if (generation.number > 0) log("plan", generation.plan);
  log("begin_steps", generation.begin.committed_steps);
  log("begin_checkpoint", generation.begin.checkpoint);
  log("reason", generation.reason);
  log("keeps_state", generation.keeps_state);
}

void leavers_fields(auto& log, wire::Either<Leavers> auto& leavers) {
  log("draining_nodes", leavers.draining_nodes);
  log("released", leavers.released);
  log("not_coming", leavers.not_coming);
}

// --- the end of a generation ------------------------------------------------

HEADROOM_FIELDS(SurvivorState, holds_a_part, checkpoint_steps, can_go_on,
                recorded_epochs)
HEADROOM_FIELDS(RestartDecision, restart, delay, reason)

void fields(auto& log, wire::Either<Leaving> auto& leaving) {
  log("committed_steps", leaving.from.committed_steps);
  log("checkpoint", leaving.from.checkpoint);
  log("shortage_step", leaving.shortage.step);
  log("failed_rank", leaving.shortage.rank);
  log("shortfall", leaving.shortage.memory);
  log("result_json", leaving.result_json);
  log("cause", leaving.cause);
  log("state", leaving.state);
}

// --- the end of a run -------------------------------------------------------

HEADROOM_FIELDS(Loss, worker_id, hostname, rank, how, explained, agent_silent,
                exit_code, last_words)
HEADROOM_FIELDS(Survivor, worker_id, rank, gone, committed_steps, can_save,
                state)
HEADROOM_FIELDS(RunEnding, loss, first_complaint, survivors, known_steps, saver,
                saved_step, gave_up, checkpoint_steps)

void fields(auto& log, wire::Either<CardFailure> auto& failure) {
  log("kind", failure.fault.kind);
  log("card", failure.fault.card);
  log("words", failure.fault.words);
  log("worker_id", failure.worker_id);
  log("node_id", failure.node_id);
  log("local_slot", failure.local_slot);
  log("hostname", failure.hostname);
  log("step", failure.step);
  log("is_charged", failure.is_charged);
  log("is_left_out", failure.is_left_out);
  log("reason", failure.reason);
}

// ----------------------------------------------------------------------------

template <typename Log, typename State>
void RunStateSnapshot::fields_of(Log& log, State& state) {
  log("phase", state.phase_);
  log("reason", state.reason_);
  log("exit_code", state.exit_code_);
  log("says_how_to_go_on", state.says_how_to_go_on_);
  log("stop_requested", state.stop_requested_);
  log("result_json", state.result_json_);
  log("generation", state.cycle_.generation_);
  log("ending", state.ending_);
  log("given_up", state.given_up_);
  log("wanted_plan", state.cycle_.wanted_plan_);
  log("network", state.config_.network);
  log("settled_config_yaml", state.settled_config_yaml_);
  log("leave_requested", state.cycle_.leave_requested_);
  log("regrouping_has_loss", state.cycle_.regrouping_.has_loss);
  log("regrouping_is_asked", state.cycle_.regrouping_.is_asked);
  log("regrouping_failure", state.cycle_.regrouping_.failure);
  log("regrouping_is_leaner", state.cycle_.regrouping_.is_leaner);
  log("fruitless", state.cycle_.fruitless_);
  log("folder", state.folder_);
}

wire::RunStateSnapshot RunStateSnapshot::of(const RunState& state) {
  wire::RunStateSnapshot image;
  wire::MessageWriter writer(image);
  fields_of(writer, state);
  writer("somebody_registered", state.waiting_since_.has_value());
  writer("nodes", state.membership_.nodes());
  writer("members", state.membership_.members());
  leavers_fields(writer, state.membership_.leavers());
  writer("card_failures", state.cards_.all());
  for (const auto& [worker_id, leaving] : state.cycle_.regrouping_.left) {
    *image.add_left() = wire::to_message<wire::LoggedLeaving>(leaving);
    image.mutable_left()->rbegin()->set_worker_id(worker_id);
  }
  for (const auto& [worker_id, decision] : state.restarts_) {
    *image.add_restarts() = wire::to_message<wire::LoggedRestart>(decision);
    image.mutable_restarts()->rbegin()->set_worker_id(worker_id);
  }
  return image;
}

void RunStateSnapshot::restore(RunState& state,
                               const wire::RunStateSnapshot& image,
                               TimePoint now, std::chrono::milliseconds grace) {
  wire::MessageReader reader(image);
  fields_of(reader, state);
  std::vector<Node> nodes;
  reader("nodes", nodes);
  std::vector<Member> members;
  reader("members", members);
  Leavers leavers;
  leavers_fields(reader, leavers);
  state.membership_.restore(std::move(nodes), std::move(members),
                            std::move(leavers));
  std::vector<CardFailure> failures;
  reader("card_failures", failures);
  state.cards_.restore(std::move(failures));
  state.membership_.expect_until(now + grace);
  if (state.cycle_.wanted_plan_) state.membership_.open();
  if (!state.settled_config_yaml_.empty()) {
    const configs::RunConfig settled = configs::parse_run_config(
        state.settled_config_yaml_, "the coordinator's log");
    state.config_.device = settled.device;
    state.config_.precision = settled.precision;
    state.config_.checks_float16 = settled.checks_float16;
    state.config_.memory_limit = settled.memory_limit;
    state.config_.memory_limit_is_machines = settled.memory_limit_is_machines;
    state.config_.host_memory_limit = settled.host_memory_limit;
  }
  // Older logs have none.
  if (state.folder_.run_id.empty()) {
    state.folder_.run_id = state.options_.run_id;
  }
  for (const wire::LoggedLeaving& leaving : image.left()) {
    state.cycle_.regrouping_.left[leaving.worker_id()] =
        wire::from_message<Leaving>(leaving);
  }
  for (const wire::LoggedRestart& entry : image.restarts()) {
    state.restarts_[entry.worker_id()] =
        wire::from_message<RestartDecision>(entry);
  }
  // Times restart with the process, and so do the slots' restart budgets: a
  // crash loop may take a few more restarts to be detected.
  if (image.somebody_registered()) state.waiting_since_ = now;
  if (state.ending_.loss) state.ending_.loss->time = now;
  state.cycle_.regrouping_.begin = now;
  state.ending_.begin = now;
  state.ending_.saver_since = now;
  state.over_since_ = now;
  state.last_tick_ = now;
}

}  // namespace headroom::coordinator
