#include "coordinator/log/run_state_snapshot.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/utf8.h"
#include "proto/convert.h"

namespace headroom::coordinator {
namespace {

template <typename Enum>
Enum checked_enum(int number, Enum last, const std::string& what) {
  if (number < 0 || number > static_cast<int>(last)) {
    throw Error("wire", what + " " + std::to_string(number) + " is unknown",
                "start the build that wrote the log");
  }
  return static_cast<Enum>(number);
}

// --- who is there -----------------------------------------------------------

wire::LoggedNode to_log(const Node& node) {
  wire::LoggedNode message;
  message.set_node_id(node.node_id);
  message.set_hostname(valid_utf8(node.hostname));
  message.set_launcher_rank(node.launcher_rank);
  for (const std::string& id : node.worker_ids) message.add_worker_ids(id);
  message.set_silent(node.silent);
  return message;
}

Node from_log(const wire::LoggedNode& message, TimePoint heard) {
  Node node;
  node.node_id = message.node_id();
  node.hostname = message.hostname();
  node.launcher_rank = message.launcher_rank();
  node.worker_ids = {message.worker_ids().begin(), message.worker_ids().end()};
  node.silent = message.silent();
  node.last_seen = heard;
  return node;
}

wire::LoggedMember to_log(const Member& member) {
  wire::LoggedMember message;
  message.set_worker_id(member.worker_id);
  message.set_node_id(member.node_id);
  message.set_hostname(valid_utf8(member.hostname));
  message.set_launcher_rank(member.launcher_rank);
  message.set_local_slot(member.local_slot);
  message.set_state(static_cast<int>(member.state));
  return message;
}

Member from_log(const wire::LoggedMember& message, TimePoint heard) {
  Member member;
  member.worker_id = message.worker_id();
  member.node_id = message.node_id();
  member.hostname = message.hostname();
  member.launcher_rank = message.launcher_rank();
  member.local_slot = message.local_slot();
  member.state =
      checked_enum(message.state(), MemberState::kGone, "member state");
  member.last_seen = heard;
  return member;
}

wire::LoggedGeneration to_log(const Generation& generation) {
  wire::LoggedGeneration message;
  message.set_number(generation.number);
  for (const RankedMember& member : generation.members) {
    wire::LoggedRank* entry = message.add_members();
    entry->set_worker_id(member.worker_id);
    entry->set_rank(member.rank);
    entry->set_local_rank(member.local_rank);
    entry->set_local_world_size(member.local_world_size);
  }
  if (generation.number > 0)
    *message.mutable_plan() = wire::to_wire(generation.plan);
  message.set_begin_steps(generation.begin.committed_steps);
  message.set_begin_checkpoint(generation.begin.checkpoint);
  message.set_reason(valid_utf8(generation.reason));
  return message;
}

Generation from_log(const wire::LoggedGeneration& message) {
  Generation generation;
  generation.number = message.number();
  for (const wire::LoggedRank& entry : message.members()) {
    generation.members.push_back({entry.worker_id(), entry.rank(),
                                  entry.local_rank(),
                                  entry.local_world_size()});
  }
  if (message.has_plan()) generation.plan = wire::from_wire(message.plan());
  generation.begin = {message.begin_steps(), message.begin_checkpoint()};
  generation.reason = message.reason();
  return generation;
}

// --- a generation that is being left ----------------------------------------

wire::LoggedSurvivorState to_log(const SurvivorState& state) {
  wire::LoggedSurvivorState message;
  message.set_holds_a_part(state.holds_a_part);
  if (state.checkpoint_steps) {
    message.set_checkpoint_steps(*state.checkpoint_steps);
  }
  return message;
}

SurvivorState from_log(const wire::LoggedSurvivorState& message) {
  SurvivorState state;
  state.holds_a_part = message.holds_a_part();
  if (message.has_checkpoint_steps()) {
    state.checkpoint_steps = message.checkpoint_steps();
  }
  return state;
}

wire::LoggedLeaving to_log(const std::string& worker_id,
                           const Leaving& leaving) {
  wire::LoggedLeaving message;
  message.set_worker_id(worker_id);
  message.set_committed_steps(leaving.from.committed_steps);
  message.set_checkpoint(leaving.from.checkpoint);
  message.set_shortage_step(leaving.shortage.step);
  message.set_failed_rank(leaving.shortage.rank);
  message.set_asked_bytes(leaving.shortage.asked_bytes);
  message.set_free_bytes(leaving.shortage.free_bytes);
  message.set_limit_bytes(leaving.shortage.limit_bytes);
  message.set_room_bytes(leaving.shortage.room_bytes);
  message.set_result_json(valid_utf8(leaving.result_json));
  message.set_cause(static_cast<int>(leaving.cause));
  *message.mutable_state() = to_log(leaving.state);
  return message;
}

Leaving from_log(const wire::LoggedLeaving& message) {
  Leaving leaving;
  leaving.from = {message.committed_steps(), message.checkpoint()};
  leaving.shortage = {message.shortage_step(), message.failed_rank(),
                      message.asked_bytes(),   message.free_bytes(),
                      message.limit_bytes(),   message.room_bytes()};
  leaving.result_json = message.result_json();
  leaving.cause =
      checked_enum(message.cause(), LeavingCause::kAsked, "leaving cause");
  leaving.state = from_log(message.state());
  return leaving;
}

// --- a run that is ending ---------------------------------------------------

wire::LoggedLoss to_log(const Loss& loss) {
  wire::LoggedLoss message;
  message.set_worker_id(loss.worker_id);
  message.set_hostname(valid_utf8(loss.hostname));
  message.set_rank(loss.rank);
  message.set_how(valid_utf8(loss.how));
  message.set_explained(loss.explained);
  message.set_agent_silent(loss.agent_silent);
  if (loss.exit_code) message.set_exit_code(*loss.exit_code);
  message.set_last_words(loss.last_words);
  return message;
}

Loss from_log(const wire::LoggedLoss& message, TimePoint now) {
  Loss loss;
  loss.worker_id = message.worker_id();
  loss.hostname = message.hostname();
  loss.rank = message.rank();
  loss.how = message.how();
  loss.explained = message.explained();
  loss.agent_silent = message.agent_silent();
  if (message.has_exit_code()) loss.exit_code = message.exit_code();
  loss.last_words = message.last_words();
  loss.time = now;
  return loss;
}

wire::LoggedSurvivor to_log(const Survivor& survivor) {
  wire::LoggedSurvivor message;
  message.set_worker_id(survivor.worker_id);
  message.set_rank(survivor.rank);
  message.set_gone(survivor.gone);
  if (survivor.committed_steps) {
    message.set_committed_steps(*survivor.committed_steps);
  }
  message.set_can_save(survivor.can_save);
  *message.mutable_state() = to_log(survivor.state);
  return message;
}

Survivor from_log(const wire::LoggedSurvivor& message) {
  Survivor survivor;
  survivor.worker_id = message.worker_id();
  survivor.rank = message.rank();
  survivor.gone = message.gone();
  if (message.has_committed_steps()) {
    survivor.committed_steps = message.committed_steps();
  }
  survivor.can_save = message.can_save();
  survivor.state = from_log(message.state());
  return survivor;
}

wire::LoggedEnding to_log(const RunEnding& ending) {
  wire::LoggedEnding message;
  if (ending.loss) *message.mutable_loss() = to_log(*ending.loss);
  message.set_first_complaint(ending.first_complaint);
  for (const Survivor& survivor : ending.survivors) {
    *message.add_survivors() = to_log(survivor);
  }
  message.set_known_steps(ending.known_steps);
  message.set_saver(ending.saver);
  if (ending.saved_step) message.set_saved_step(*ending.saved_step);
  return message;
}

RunEnding from_log(const wire::LoggedEnding& message, TimePoint now) {
  RunEnding ending;
  ending.begin = now;
  if (message.has_loss()) ending.loss = from_log(message.loss(), now);
  ending.first_complaint = message.first_complaint();
  for (const wire::LoggedSurvivor& survivor : message.survivors()) {
    ending.survivors.push_back(from_log(survivor));
  }
  ending.known_steps = message.known_steps();
  ending.saver = message.saver();
  ending.saver_since = now;
  if (message.has_saved_step()) ending.saved_step = message.saved_step();
  return ending;
}

}  // namespace

wire::RunStateSnapshot RunStateSnapshot::of(const RunState& state) {
  wire::RunStateSnapshot image;
  image.set_phase(static_cast<int>(state.phase_));
  image.set_reason(state.reason_);
  image.set_exit_code(state.exit_code_);
  image.set_stop_requested(state.stop_requested_);
  image.set_result_json(state.result_json_);
  image.set_somebody_registered(state.waiting_since_.has_value());
  for (const Node& node : state.membership_.nodes()) {
    *image.add_nodes() = to_log(node);
  }
  for (const Member& member : state.membership_.members()) {
    *image.add_members() = to_log(member);
  }
  *image.mutable_generation() = to_log(state.generation_);
  for (const auto& [worker_id, leaving] : state.reforming_.left) {
    *image.add_left() = to_log(worker_id, leaving);
  }
  *image.mutable_ending() = to_log(state.ending_);
  for (const std::string& worker_id : state.given_up_) {
    image.add_given_up(worker_id);
  }
  if (state.wanted_plan_) {
    *image.mutable_wanted_plan() = wire::to_wire(*state.wanted_plan_);
  }
  image.set_leave_requested(state.leave_requested_);
  for (const std::string& node_id : state.draining_nodes_) {
    image.add_draining_nodes(node_id);
  }
  for (const std::string& worker_id : state.released_) {
    image.add_released(worker_id);
  }
  for (const std::string& worker_id : state.not_coming_) {
    image.add_not_coming(worker_id);
  }
  for (const auto& [worker_id, decision] : state.restarts_) {
    wire::LoggedRestart* entry = image.add_restarts();
    entry->set_worker_id(worker_id);
    entry->set_restart(decision.restart);
    entry->set_delay_ms(decision.delay.count());
    entry->set_reason(decision.reason);
  }
  image.set_reforming_has_loss(state.reforming_.has_loss);
  image.set_reforming_is_asked(state.reforming_.is_asked);
  return image;
}

void RunStateSnapshot::restore(RunState& state,
                               const wire::RunStateSnapshot& image,
                               TimePoint now, std::chrono::milliseconds grace) {
  state.phase_ = checked_enum(image.phase(), RunPhase::kFailed, "phase");
  state.reason_ = image.reason();
  state.exit_code_ = image.exit_code();
  state.stop_requested_ = image.stop_requested();
  state.result_json_ = image.result_json();
  if (image.somebody_registered()) state.waiting_since_ = now;
  std::vector<Node> nodes;
  for (const wire::LoggedNode& node : image.nodes()) {
    nodes.push_back(from_log(node, now + grace));
  }
  std::vector<Member> members;
  for (const wire::LoggedMember& member : image.members()) {
    members.push_back(from_log(member, now + grace));
  }
  state.membership_.restore(std::move(nodes), std::move(members));
  state.generation_ = from_log(image.generation());
  state.reforming_.begin = now;
  for (const wire::LoggedLeaving& leaving : image.left()) {
    state.reforming_.left[leaving.worker_id()] = from_log(leaving);
  }
  state.ending_ = from_log(image.ending(), now);
  state.given_up_ = {image.given_up().begin(), image.given_up().end()};
  if (image.has_wanted_plan()) {
    state.wanted_plan_ = wire::from_wire(image.wanted_plan());
    state.membership_.open();
  }
  state.leave_requested_ = image.leave_requested();
  state.draining_nodes_ = {image.draining_nodes().begin(),
                           image.draining_nodes().end()};
  state.released_ = {image.released().begin(), image.released().end()};
  state.not_coming_ = {image.not_coming().begin(), image.not_coming().end()};
  for (const wire::LoggedRestart& entry : image.restarts()) {
    RestartDecision& decision = state.restarts_[entry.worker_id()];
    decision.restart = entry.restart();
    decision.delay = std::chrono::milliseconds(entry.delay_ms());
    decision.reason = entry.reason();
  }
  state.reforming_.has_loss = image.reforming_has_loss();
  state.reforming_.is_asked = image.reforming_is_asked();
  // How often a slot's workers have ended in a row is counted anew.
  state.over_since_ = now;
  state.last_tick_ = now;
}

}  // namespace headroom::coordinator
