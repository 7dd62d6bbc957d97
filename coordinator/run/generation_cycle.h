// GenerationCycle: the generation that runs, and how the next one comes about.
//
//   forms       with its ranks, plan and the state it begins from
//   is to end   newcomers would make it larger, or members' nodes are to leave
//   is left     after a loss, for want of memory, or as it was asked to
//   next        with whoever is there, or the run has to end
//
// Decisions are values with a reason; RunState carries them out.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "coordinator/run/membership.h"
#include "coordinator/run/regrouping.h"
#include "parallel/base/check.h"

namespace headroom::coordinator {

// What a regrouping comes to.
struct CycleDecision {
  enum class Kind {
    kWait,
    kLose,  // `worker_id` speaks, but does not leave
    kForm,  // a generation of `plan` from `begin`
    kStop,  // what is there is saved
    kEnd    // all is saved: the run is over, with `exit_code`
  };
  Kind kind = Kind::kWait;
  std::string reason;
  std::string worker_id = {};
  std::optional<plan::Plan> plan = {};
  ResumePoint begin = {};
  ExitCode exit_code = ExitCode::kDone;
  bool says_how_to_go_on = false;  // `reason` has the command that resumes it
  // kStop: not for want of members.
  bool is_fruitless = false;
};

// The time for a member to come to the rendezvous, its first act.
inline constexpr std::chrono::milliseconds kArrival = std::chrono::seconds(15);

class GenerationCycle {
 public:
  // What the cycle looks at and others own.
  struct Inputs {
    const configs::RunConfig& config;
    const Membership& membership;
    const RunEnding& ending;
    // The time for a living member to leave its generation.
    std::chrono::milliseconds leave_timeout;
    RegroupingOptions regrouping;
    // The model's, where the plan needs them.
    const std::vector<layers::LayerCost>& layers;
    const std::string& run_directory;
  };
  explicit GenerationCycle(const Inputs& inputs) : inputs_(inputs) {}

  // The plan of all the workers that the run asked for.
  void want(const plan::Plan& plan) { wanted_plan_ = plan; }
  // The next generation, of as many workers as the plan has ranks: those who
  // have the newest state first.
  void form(TimePoint now, const plan::Plan& plan, const ResumePoint& begin,
            const std::string& reason);

  // The member has come to the generation's rendezvous.
  void note_arrival(const std::string& worker_id) {
    arrived_.insert(worker_id);
  }
  // Members that have not, though others wait there for them, and for longer
  // than a process takes that works: kArrival.
  std::vector<std::string> absent(TimePoint now) const;

  // Why the generation is asked from now on to end at its next committed step:
  // newcomers, or "" where a node of its members leaves, which is known.
  // REQUIRES: it runs, and may be regrouped.
  std::optional<std::string> ask_to_end(TimePoint now);
  bool leave_requested() const { return leave_requested_; }

  // It is being left from now on.
  void begin_regrouping(TimePoint now);
  void note_loss(const std::string& worker_id);
  // The member has left because of a failure of its own or of a peer, and waits
  // for the next generation.
  void note_failure(const std::string& worker_id,
                    const wire::WorkerFailure& failure);
  void note_left(const std::string& worker_id, const Leaving& leaving);
  // The coordinator was away for that long, which is nobody's delay.
  void excuse(std::chrono::steady_clock::duration pause) {
    regrouping_.begin += pause;
    if (formed_) *formed_ += pause;
  }
  // REQUIRES: it is being left.
  CycleDecision decide(TimePoint now, bool stop_requested, int64_t known_steps);

  const Generation& generation() const { return generation_; }
  const Regrouping& regrouping() const { return regrouping_; }
  // -1: the worker is no member.
  int rank_of(const std::string& worker_id) const;
  // What the log's event says of it: its members and where it begins.
  std::string detail_json() const;

 private:
  friend class RunStateSnapshot;  // what a coordinator writes down of it

  bool has_draining_members() const;
  // Ranks that live and have not left.
  const std::set<int>& still_busy();
  void note_left_rank(const std::string& worker_id);
  RegroupingView view(TimePoint now, bool stop_requested) const;
  CycleDecision after_loss(TimePoint now, const std::string& there,
                           int64_t known_steps) const;
  // Whether the generation that is being left made no progress though no process
  // was lost, and the next one would be no leaner.
  bool is_fruitless(const plan::Plan& next, const ResumePoint& begin) const;
  CycleDecision after_shortage(bool stop_requested);

  const Inputs inputs_;
  Generation generation_;
  Regrouping regrouping_;
  // Nothing until it is asked for. Who is gone may still be in it.
  std::optional<std::set<int>> busy_;
  // The run's own plan: the first, or the one that memory made of it.
  std::optional<plan::Plan> wanted_plan_;
  bool leave_requested_ = false;
  // How generations in a row ended that committed no step, the newest last.
  std::vector<std::string> fruitless_;
  // Nothing where a coordinator before this one formed the generation.
  std::optional<TimePoint> formed_;
  std::set<std::string> arrived_;
  int considered_workers_ = 0;  // available ones, when a plan was last sought
  std::optional<TimePoint> newcomers_since_;  // more are there than take part
};

}  // namespace headroom::coordinator
