#include "coordinator/run/generation_cycle.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/run/device_choice.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/planner/replan.h"

namespace headroom::coordinator {

void GenerationCycle::form(TimePoint now, const plan::Plan& plan,
                           const ResumePoint& begin,
                           const std::string& reason) {
  std::vector<Member> members =
      newest_first(regrouping_, membership_.available());
  members.resize(
      std::min(members.size(), static_cast<size_t>(plan.layout.world_size())));
  if (is_fruitless(plan, begin)) {
    fruitless_.push_back(cat("generation ", generation_.number, ": ", reason));
  } else {
    fruitless_.clear();
  }
  Generation next = next_generation(
      generation_,
      assign_ranks(members, membership_.slots(), options_.first_host), plan,
      begin, reason);
  next.keeps_state = can_keep_state(generation_, next, regrouping_);
  generation_ = std::move(next);
  regrouping_ = {};
  busy_.reset();
  leave_requested_ = false;
  considered_workers_ = 0;
  newcomers_since_.reset();
  formed_ = now;
  arrived_.clear();
}

bool GenerationCycle::is_fruitless(const plan::Plan& next,
                                   const ResumePoint& begin) const {
  // Returns false if the generation lost a process: the restart budgets limit
  // how often that happens.
  if (!regrouping_.has_loss || ending_.loss) return false;
  if (regrouping_.is_leaner) return false;
  const bool is_other_plan =
      next != generation_.plan &&
      next.layout.world_size() == generation_.plan.layout.world_size();
  return !is_other_plan &&
         begin.committed_steps <= generation_.begin.committed_steps;
}

std::vector<std::string> GenerationCycle::absent(TimePoint now) const {
  std::vector<std::string> absent;
  if (!formed_ || arrived_.empty() || now - *formed_ <= kArrival ||
      arrived_.size() == generation_.members.size()) {
    return absent;
  }
  for (const RankedMember& member : generation_.members) {
    if (!arrived_.contains(member.worker_id)) {
      absent.push_back(member.worker_id);
    }
  }
  return absent;
}

RegroupingView GenerationCycle::view(TimePoint now, bool stop_requested) const {
  RegroupingView view;
  view.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      now - regrouping_.begin);
  view.wanted = wanted_plan_->layout.world_size();
  // A run that is stopping needs one process to commit its last step.
  view.min_processes =
      stop_requested ? 1 : static_cast<int>(config_.min_processes);
  view.ready = membership_.num_available();
  view.coming = membership_.num_coming();
  view.has_agent = membership_.has_agent();
  return view;
}

bool GenerationCycle::has_draining_members() const {
  const Membership& all = membership_;
  if (all.leavers().draining_nodes.empty()) return false;
  return std::ranges::any_of(
      generation_.members, [&](const RankedMember& ranked) {
        const Member* member = all.find(ranked.worker_id);
        return member != nullptr && all.is_draining(member->node_id);
      });
}

planner::ModelOnCard GenerationCycle::model() const {
  return {options_.layers, card_of_run(config_, membership_.nodes(),
                                       options_.layers, options_.measurements)};
}

// If more workers are starting, waits for them up to restart_wait first.
std::optional<std::string> GenerationCycle::ask_to_end(TimePoint now) {
  if (leave_requested_) return std::nullopt;
  if (has_draining_members()) {
    leave_requested_ = true;
    return "";
  }
  const int world_size = generation_.plan.layout.world_size();
  const int count = membership_.num_available();
  if (count <= world_size) {
    newcomers_since_.reset();
    considered_workers_ = 0;
    return std::nullopt;
  }
  if (!newcomers_since_) newcomers_since_ = now;
  if (membership_.num_coming() > 0 &&
      now - *newcomers_since_ < options_.regrouping.restart_wait) {
    return std::nullopt;
  }
  // Planning takes time: plan once for each number of workers.
  if (count == considered_workers_) return std::nullopt;
  considered_workers_ = count;
  const planner::ElasticPlan next =
      planner::plan_for_workers(config_, *wanted_plan_, count, model());
  if (!next.plan || next.plan->layout.world_size() <= world_size) {
    return std::nullopt;
  }
  leave_requested_ = true;
  return cat(count,
             " workers are there: the next committed step ends generation ",
             generation_.number);
}

void GenerationCycle::begin_regrouping(TimePoint now) {
  regrouping_ = {};
  regrouping_.begin = now;
  busy_.reset();
}

// Computed once per regrouping, however many members leave.
const std::set<int>& GenerationCycle::still_busy() {
  if (!busy_) {
    busy_.emplace();
    for (const RankedMember& member :
         still_to_leave(regrouping_, generation_.members, membership_)) {
      busy_->insert(member.rank);
    }
  }
  const auto is_gone = [this](int rank) {
    const Member* member = membership_.find(
        generation_.members[static_cast<size_t>(rank)].worker_id);
    return member == nullptr || member->state != MemberState::kJoined;
  };
  while (!busy_->empty() && is_gone(*busy_->begin())) {
    busy_->erase(busy_->begin());
  }
  return *busy_;
}

void GenerationCycle::note_left_rank(const std::string& worker_id) {
  if (busy_) busy_->erase(rank_of(worker_id));
}

void GenerationCycle::note_loss(const std::string& worker_id) {
  regrouping_.has_loss = true;
  regrouping_.left.erase(worker_id);
  note_left_rank(worker_id);
}

void GenerationCycle::note_failure(const std::string& worker_id,
                                   const wire::WorkerFailure& failure) {
  using wire::FailureKind;
  regrouping_.has_loss = true;
  note_left_rank(worker_id);
  Leaving& left = regrouping_.left[worker_id];
  left.cause = LeavingCause::kLostPeer;
  left.from = {failure.committed_steps, ""};
  left.state = survivor_state(failure);
  if (failure.kind == FailureKind::kLostPeer) return;
  const bool is_memory = failure.kind == FailureKind::kOutOfMemory;
  regrouping_.is_leaner |= failure.is_leaner;
  if (!regrouping_.failure.empty()) return;
  regrouping_.failure =
      cat("rank ", rank_of(worker_id),
          is_memory ? " ran out of memory"
                    : " failed: " + one_line(failure.message));
}

void GenerationCycle::note_left(const std::string& worker_id,
                                const Leaving& leaving) {
  note_left_rank(worker_id);
  regrouping_.left[worker_id] = leaving;
  if (leaving.cause == LeavingCause::kAsked) regrouping_.is_asked = true;
  if (!leaving.float16_error.empty()) {
    regrouping_.failure = "the check of fp16 failed";
  }
}

CycleDecision GenerationCycle::decide(TimePoint now, bool stop_requested,
                                      int64_t known_steps) {
  using Kind = CycleDecision::Kind;
  const std::set<int>& busy = still_busy();
  if (!busy.empty()) {
    const std::string reason =
        cat(generation_.members.size() - busy.size(), " of ",
            generation_.members.size(), " workers have left generation ",
            generation_.number);
    if (now - regrouping_.begin < options_.ending.report_timeout) {
      return {.kind = Kind::kWait, .reason = reason};
    }
    return {
        .kind = Kind::kLose,
        .reason = reason,
        .worker_id =
            generation_.members[static_cast<size_t>(*busy.begin())].worker_id};
  }
  if (!regrouping_.has_loss && !regrouping_.is_asked) {
    return after_shortage(stop_requested);
  }
  const RegroupingDecision decision =
      decide_regrouping(view(now, stop_requested), options_.regrouping);
  if (decision.kind == RegroupingDecision::Kind::kForm) {
    return after_loss(now, decision.reason, known_steps);
  }
  const bool gives_up = decision.kind == RegroupingDecision::Kind::kGiveUp;
  return {.kind = gives_up ? Kind::kStop : Kind::kWait,
          .reason = decision.reason};
}

// Decides the next action after a loss, or if workers joined or nodes leave.
CycleDecision GenerationCycle::after_loss(TimePoint now,
                                          const std::string& there,
                                          int64_t known_steps) const {
  using Kind = CycleDecision::Kind;
  const int count = membership_.num_available();
  // No worker is available.
  if (count == 0) return {.kind = Kind::kStop, .reason = there};
  const planner::ElasticPlan next =
      planner::plan_for_workers(config_, *wanted_plan_, count, model());
  if (!next.plan) {
    const bool waits =
        now - regrouping_.begin < options_.regrouping.join_timeout;
    return {
        .kind = waits ? Kind::kWait : Kind::kStop,
        .reason = there + ", and there is no plan for them: " + next.reason};
  }
  std::string cause;
  if (ending_.loss) {
    const Loss& loss = *ending_.loss;
    cause = cat("rank ", loss.rank, " on ", loss.hostname, " ",
                describe_loss(loss), "; ");
  } else if (!regrouping_.failure.empty()) {
    cause = regrouping_.failure + "; ";
  } else if (!ending_.first_complaint.empty()) {
    cause = "the workers lost each other; ";
  }
  const ResumePoint begin = newest_state(regrouping_, known_steps);
  const bool adds_to_fruitless = is_fruitless(*next.plan, begin);
  if (adds_to_fruitless && fruitless_.size() + 1 >= kMostFruitless) {
    std::string all =
        cat(kMostFruitless,
            " generations in a row ended without a committed step: ");
    for (const std::string& one : fruitless_) all += one + "; ";
    return {.kind = Kind::kStop,
            .reason =
                cat(all, "generation ", generation_.number, ": ", cause, there),
            .is_fruitless = true};
  }
  // Pause, so that a short network failure does not use up all tries.
  if (adds_to_fruitless && !fruitless_.empty() &&
      now - regrouping_.begin < pause_after(fruitless_.size())) {
    return {.kind = Kind::kWait, .reason = cause + there};
  }
  return {.kind = Kind::kForm,
          .reason = cause + there,
          .plan = next.plan,
          .begin = begin};
}

CycleDecision GenerationCycle::after_shortage(bool stop_requested) {
  using Kind = CycleDecision::Kind;
  const ResumePoint from =
      regrouping_.left.at(generation_.members[0].worker_id).from;
  const std::string saved =
      "; the state after " + counted(from.committed_steps, "step") +
      " is saved, continue with: headroom train --resume " +
      shell_word(options_.run_directory);
  if (stop_requested) {
    return {.kind = Kind::kEnd,
            .reason = "interrupted between two generations" + saved,
            .exit_code = ExitCode::kInterrupted,
            .says_how_to_go_on = true};
  }
  const planner::MemoryShortage shortage =
      shortage_of(regrouping_, generation_.members);
  const planner::Replan next = planner::plan_after_shortage(
      config_, generation_.plan, shortage, model());
  if (!next.plan) {
    return {
        .kind = Kind::kEnd,
        .reason = planner::describe(shortage) + "; " + next.reason + saved +
                  (next.resume_flags.empty() ? "" : " " + next.resume_flags),
        .exit_code = ExitCode::kResource,
        .says_how_to_go_on = true};
  }
  // A plan for fewer workers must not replace the plan for all workers.
  if (next.plan->layout.world_size() == wanted_plan_->layout.world_size()) {
    wanted_plan_ = next.plan;
  }
  return {.kind = Kind::kForm,
          .reason = planner::describe(shortage),
          .plan = next.plan,
          .begin = from};
}

int GenerationCycle::rank_of(const std::string& worker_id) const {
  const RankedMember* member = generation_.find(worker_id);
  return member == nullptr ? -1 : member->rank;
}

std::string GenerationCycle::detail_json() const {
  nlohmann::ordered_json detail;
  detail["generation"] = generation_.number;
  detail["world_size"] = generation_.members.size();
  if (!generation_.begin.checkpoint.empty()) {
    detail["checkpoint"] = valid_utf8(generation_.begin.checkpoint);
  }
  for (const RankedMember& member : generation_.members) {
    const Member& known = *membership_.find(member.worker_id);
    detail["workers"].push_back({{"rank", member.rank},
                                 {"worker_id", member.worker_id},
                                 {"hostname", valid_utf8(known.hostname)}});
  }
  return detail.dump();
}

}  // namespace headroom::coordinator
