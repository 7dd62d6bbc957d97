// GenerationCycle: the current generation, and the transition to the next one.
//
//   form()              forms a generation with ranks, a plan and a state to
//                       start from
//   ask_to_end()        asks the generation to end if new workers allow a
//                       larger one, or nodes leave
//   begin_regrouping()  is called after a loss, a lack of memory, or when the
//                       members leave because they were asked to
//   decide()            forms the next generation with the available workers,
//                       or ends the run
//
// Decisions are values with a reason; RunState carries them out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "configs/card_measurements.h"
#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "coordinator/run/membership.h"
#include "coordinator/run/quorum.h"
#include "coordinator/run/regrouping.h"
#include "parallel/base/check.h"
#include "parallel/planner/card_speed.h"

namespace headroom::coordinator {

struct RunOptions {
  QuorumOptions quorum;
  EndingOptions ending;
  RegroupingOptions regrouping;
  SilenceLimits silence;
  std::string run_directory;
  std::string run_id;  // folder_place.h
  // Rank 0, which writes the run's folder, is on this machine if it can be: the
  // coordinator's own.
  std::string first_host;
  // The model's layers; empty if the plan does not need them.
  std::vector<layers::LayerCost> layers;
  // What was measured on cards of any kind, for plans.
  std::vector<configs::CardMeasurement> measurements = {};
  // The first generation's plan; without it the configuration decides.
  std::optional<plan::Plan> plan = {};
};

// The next action in a regrouping.
struct CycleDecision {
  enum class Kind {
    kWait,
    kLose,  // give up `worker_id`: it is alive but does not leave
    kForm,  // form a generation of `plan` from `begin`
    kStop,  // save the state, then end the run
    kEnd    // the state is saved: end the run with `exit_code`
  };
  Kind kind = Kind::kWait;
  std::string reason;
  std::string worker_id = {};
  std::optional<plan::Plan> plan = {};
  ResumePoint begin = {};
  ExitCode exit_code = ExitCode::kDone;
  bool says_how_to_go_on = false;  // `reason` contains the resume command
  // Used only for kStop. True if the run stops because generations made no
  // progress, false if members are missing.
  bool is_fruitless = false;
};

// How long a member may take to reach the rendezvous, which is its first
// action. A larger value tolerates slow starts, but finds a hung member later.
inline constexpr std::chrono::milliseconds kArrival = std::chrono::seconds(15);

class GenerationCycle {
 public:
  // The arguments must outlive the cycle. `config` and `ending` change while
  // the run goes on.
  GenerationCycle(const RunOptions& options, const configs::RunConfig& config,
                  const Membership& membership, const RunEnding& ending)
      : options_(options),
        config_(config),
        membership_(membership),
        ending_(ending) {}

  // What is planned: the model, and the slowest card of the present nodes.
  planner::ModelOnCard model() const;

  // Sets the plan for the full number of workers that the run requested.
  void want(const plan::Plan& plan) { wanted_plan_ = plan; }
  // No value before the first generation.
  const std::optional<plan::Plan>& wanted_plan() const { return wanted_plan_; }
  // Forms the next generation, with as many workers as the plan has ranks.
  // Workers with the newest state are taken first.
  void form(TimePoint now, const plan::Plan& plan, const ResumePoint& begin,
            const std::string& reason);

  // Records that the member has reached the generation's rendezvous.
  void note_arrival(const std::string& worker_id) {
    arrived_.insert(worker_id);
  }
  // Returns the members that have not reached the rendezvous within kArrival
  // after the generation was formed, if another member has reached it.
  std::vector<std::string> absent(TimePoint now) const;

  // Asks the generation to end at its next committed step if new workers allow
  // a larger one or a node of its members leaves. Returns the reason, or "" for
  // a leaving node, for which an event was already emitted; nullopt if the
  // generation continues. REQUIRES: the generation is running and may be
  // regrouped.
  std::optional<std::string> ask_to_end(TimePoint now);
  bool leave_requested() const { return leave_requested_; }

  // Call when the members begin to leave the generation.
  void begin_regrouping(TimePoint now);
  void note_loss(const std::string& worker_id);
  // The member has left after a failure of its own or of a peer, and waits for
  // the next generation.
  void note_failure(const std::string& worker_id,
                    const wire::WorkerFailure& failure);
  void note_left(const std::string& worker_id, const Leaving& leaving);
  // Call when the coordinator was paused for `pause`: all time limits move by
  // this time.
  void excuse(std::chrono::steady_clock::duration pause) {
    regrouping_.begin += pause;
    if (formed_) *formed_ += pause;
  }
  // Decides what to do next. REQUIRES: begin_regrouping() was called.
  CycleDecision decide(TimePoint now, bool stop_requested, int64_t known_steps);

  const Generation& generation() const { return generation_; }
  const Regrouping& regrouping() const { return regrouping_; }
  // Returns -1 if the worker is not a member.
  int rank_of(const std::string& worker_id) const;
  // Details for the event of this generation: its members and its start.
  std::string detail_json() const;

 private:
  friend class RunStateSnapshot;  // reads and restores the logged members

  bool has_draining_members() const;
  // Ranks that are alive and have not left yet.
  const std::set<int>& still_busy();
  void note_left_rank(const std::string& worker_id);
  RegroupingView view(TimePoint now, bool stop_requested) const;
  CycleDecision after_loss(TimePoint now, const std::string& there,
                           int64_t known_steps) const;
  // Whether the ending generation committed no step, although it lost no
  // process, and the next one would have the same plan and no less memory.
  bool is_fruitless(const plan::Plan& next, const ResumePoint& begin) const;
  CycleDecision after_shortage(bool stop_requested);

  const RunOptions& options_;
  const configs::RunConfig& config_;
  const Membership& membership_;
  const RunEnding& ending_;
  Generation generation_;
  Regrouping regrouping_;
  // Cached by still_busy(); no value until it is first called. May still
  // contain ranks that are gone.
  std::optional<std::set<int>> busy_;
  // The run's own plan: the first plan, or its replacement after a lack of
  // memory.
  std::optional<plan::Plan> wanted_plan_;
  bool leave_requested_ = false;
  // Why the latest fruitless generations in a row ended, newest last.
  std::vector<std::string> fruitless_;
  // When the generation was formed; no value if a previous coordinator process
  // formed it.
  std::optional<TimePoint> formed_;
  std::set<std::string> arrived_;
  // The number of available workers when a larger plan was last searched for.
  int considered_workers_ = 0;
  // The time at which more workers became available than the plan uses.
  std::optional<TimePoint> newcomers_since_;
};

}  // namespace headroom::coordinator
