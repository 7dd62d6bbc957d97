// RunState: one run from the first registration to its exit code, as a state
// machine without clock, network or thread.
//
//   waiting --all joined--> running --rank 0 finishes--> finished | failed
//                            |   ^                            ^
//      a worker leaves, or is|   |whoever lives has left:     |
//      lost, or complains of |   |the next generation         |
//      a peer                v   |                            |
//                         regrouping --there is none that may be
//                            |
//                            v
//                        stopping --saved, or nothing to save--> failed
//
// A worker that is lost in `waiting` is waited for; the run stops where it gets
// no successor.
// Calls are what happened, with the time as an argument; what is to be done
// about it is read out with take_orders() and take_events().
//
// Threads: none of its own; the service guards it, and all that it holds.
// Invariants:
//   1. the generation's number only rises, and only when `running` is entered;
//   2. a worker gets at most one kRun per generation, and nothing after kExit;
//   3. finished and failed are final: exit code and reason no longer change.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/run_config.h"
#include "coordinator/run/card_failures.h"
#include "coordinator/run/generation_cycle.h"
#include "coordinator/run/membership.h"
#include "coordinator/run/quorum.h"
#include "coordinator/run/regrouping.h"
#include "coordinator/run/restart_policy.h"
#include "coordinator/run/run_ending.h"
#include "coordinator/run/run_status.h"
#include "proto/reports.h"

namespace headroom::coordinator {

struct RunOptions {
  QuorumOptions quorum;
  EndingOptions ending;
  RegroupingOptions regrouping;
  SilenceLimits silence;
  std::string run_directory;
  // The model's layers, if the plan needs them.
  std::vector<layers::LayerCost> layers;
  // The first generation's plan; none: that of the request.
  std::optional<plan::Plan> plan = {};
};

// A coordinator stays so long to tell everybody that the run is over.
inline constexpr std::chrono::milliseconds kFarewell = std::chrono::seconds(5);

// How long workers and agents may take to find a restarted coordinator, on top
// of the usual time between heartbeats.
inline constexpr std::chrono::milliseconds kReadoption =
    std::chrono::seconds(5);

// What a worker is told over its stream of assignments.
struct Order {
  enum class Kind { kRun, kSaveAndExit, kExit };
  Kind kind = Kind::kExit;
  std::string worker_id;
  std::string reason;
};

// What a node's agent is told with every heartbeat.
struct NodeAnswer {
  bool known = false;
  std::vector<std::string> lost_worker_ids;
};

class RunState {
 public:
  // REQUIRES: choose_plan(config, options.quorum.expected_workers,
  // options.layers) has a plan.
  RunState(const RunOptions& options, const configs::RunConfig& config,
           TimePoint now);
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  // --- what happened; a refusal is returned ---------------------------------
  std::optional<std::string> register_node(TimePoint now, Node node);
  std::optional<std::string> join(TimePoint now, const std::string& worker_id,
                                  const std::string& node_id);
  // False: nobody of that name takes part (any more).
  // `age`: time since its agent, which speaks for it, has heard it.
  bool worker_heartbeat(TimePoint now, const std::string& worker_id,
                        const std::optional<wire::RunProgress>& progress,
                        std::optional<std::chrono::milliseconds> age = {});
  // Whether that member waits for its peers now.
  void note_waiting(const std::string& worker_id, bool waits) {
    waits_[worker_id] = waits;
  }
  // Words of a worker or node came then, whatever they say.
  void note_sign_of_life(TimePoint at, const std::string& name) {
    membership_.note_sign_of_life(at, name);
  }
  // The connection of the node's agent has ended.
  void note_hangup(const std::string& node_id) {
    membership_.note_hangup(node_id);
  }
  NodeAnswer node_heartbeat(TimePoint now, const std::string& node_id);
  // Rank 0 has measured the network: later plans count on it.
  void note_network(const plan::NetworkRates& network) {
    config_.network = network;
  }
  // This very process may have been stopped since the last tick (a paused
  // machine, SIGSTOP): then all are given time to find their way back. REQUIRED
  // before what happened after it.
  void note_pause(TimePoint now);
  // Connections that broke in such a pause are made again.
  bool is_readopting(TimePoint now) const { return now < readopting_until_; }
  // The worker's stream of assignments has ended.
  void worker_disconnected(TimePoint now, const std::string& worker_id);
  // Whether its agent is to start a successor, which it registers first.
  RestartDecision worker_exited(TimePoint now, const std::string& worker_id,
                                int exit_code, const std::string& last_words);
  void worker_failed(TimePoint now, const std::string& worker_id,
                     const wire::WorkerFailure& failure);
  // The worker's card failed (failure.card_fault): the worker is lost.
  void card_failed(TimePoint now, const std::string& worker_id,
                   const wire::WorkerFailure& failure);
  // The worker has left its generation at a committed step.
  std::optional<std::string> generation_left(TimePoint now,
                                             const std::string& worker_id,
                                             const Leaving& leaving);
  // The worker has come to its generation's rendezvous.
  void note_arrival(const std::string& worker_id) {
    cycle_.note_arrival(worker_id);
  }
  void committed(int64_t step,
                 const std::optional<wire::RunProgress>& progress);
  std::optional<std::string> finish(TimePoint now, const std::string& worker_id,
                                    const wire::FinishedRun& finished);
  void drain(TimePoint now, const std::string& reason);
  // This node's workers leave at the next committed step; the run goes on with
  // the others, or is drained if there are none.
  void drain_node(TimePoint now, const std::string& node_id,
                  const std::string& reason);
  void stop(TimePoint now, const std::string& reason);
  // Time has passed. REQUIRED several times a second.
  void tick(TimePoint now);

  // --- what is to be done ---------------------------------------------------
  std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<wire::EventRecord> take_events() {
    return std::exchange(events_, {});
  }

  // --- what is --------------------------------------------------------------
  RunPhase phase() const { return phase_; }
  bool over() const {
    return phase_ == RunPhase::kFinished || phase_ == RunPhase::kFailed;
  }
  // True once the run is over, no worker is connected, every node that is not
  // silent has had an answer since, and no follower of the events is left; or
  // once kFarewell passed.
  bool everybody_told(TimePoint now, bool followers_left) const;
  bool stop_requested() const { return stop_requested_; }
  // Members are to leave their generation at the next committed step.
  bool leave_requested() const { return cycle_.leave_requested(); }
  // Whether a member of this generation is lost and the others are to leave it:
  // for the next one, or because the run ends.
  bool peer_lost() const {
    return (phase_ == RunPhase::kRegrouping && cycle_.regrouping().has_loss) ||
           (phase_ == RunPhase::kStopping && ending_.loss.has_value()) ||
           phase_ == RunPhase::kFailed;
  }
  // Whether any member said last that it does not wait for its peers. Then the
  // others wait for a rank that is late.
  bool a_member_works() const {
    return std::ranges::any_of(waits_, [this](const auto& entry) {
      return !entry.second && cycle_.rank_of(entry.first) >= 0;
    });
  }
  int exit_code() const { return exit_code_; }
  const std::string& reason() const { return reason_; }
  const Generation& generation() const { return cycle_.generation(); }
  // The run's configuration once its device and precision are settled; ""
  // before, and where nothing was to be settled.
  const std::string& settled_config_yaml() const {
    return settled_config_yaml_;
  }
  const Membership& membership() const { return membership_; }
  const CardFailures& cards() const { return cards_; }
  RunStatus status(TimePoint now) const;

 private:
  friend class RunStateSnapshot;  // what a coordinator writes down of it

  void advance(TimePoint now);
  void advance_waiting(TimePoint now);
  void advance_running(TimePoint now);
  void advance_regrouping(TimePoint now);
  void advance_stopping(TimePoint now);
  // Chooses the cards of a node that registers. Returns why it is refused: that
  // ends a run which waits for its workers, since none can take its place.
  std::optional<std::string> place_on_cards(TimePoint now, Node& node);
  // False where the run cannot compute on what its nodes have: it has ended.
  bool settle_devices(TimePoint now);
  void form_first_generation(TimePoint now, int workers,
                             const std::string& reason);
  void form_generation(TimePoint now, const plan::Plan& plan,
                       const ResumePoint& begin, const std::string& reason);
  void release_drained();
  void lose_if_stuck(TimePoint now, const std::string& worker_id,
                     const wire::RunProgress& progress);
  // Its agent is to make sure that it ends.
  void give_up(TimePoint now, const std::string& worker_id,
               const std::string& how);
  void lose(TimePoint now, Loss loss);
  bool can_regroup() const;
  // Whether a worker that is lost now may be followed by another.
  bool may_have_successor() const;
  // Ends the run where all cards are left out and no worker can come. True if
  // so. REQUIRES: kRegrouping.
  bool end_without_cards(TimePoint now);
  void begin_regrouping(TimePoint now);
  void begin_stopping(TimePoint now);
  void end(TimePoint now, int exit_code, const EndReason& reason);
  void emit(EventKind event, int rank, const std::string& reason,
            bool warning = false, const std::string& detail_json = "");
  // `explained`: `how` says why it happened.
  Loss loss_of(const std::string& worker_id, const std::string& how,
               bool explained = false) const;

  const RunOptions options_;
  // The request, and the network once measured. Device and precision are
  // settled when the first generation is formed.
  configs::RunConfig config_;
  std::string settled_config_yaml_;
  Membership membership_;
  RunPhase phase_ = RunPhase::kWaiting;
  std::string reason_;
  int exit_code_ = 0;
  bool says_how_to_go_on_ = false;  // reason_ does
  RunEnding ending_;                // set since kStopping
  GenerationCycle cycle_;
  std::optional<TimePoint> waiting_since_;  // the first registration
  TimePoint last_tick_;
  TimePoint readopting_until_;
  TimePoint over_since_;
  bool stop_requested_ = false;
  wire::RunProgress progress_;
  std::string result_json_;
  // What was decided of workers whose end was reported, until they are
  // succeeded: a report may come twice.
  std::map<std::string, RestartDecision> restarts_;
  // Commits of all generations, repeated ones included.
  int64_t num_commits_ = 0;
  CardFailures cards_;
  std::map<std::pair<std::string, int>, RestartBudget>
      restart_budgets_;  // The restart budget of each slot of each node.
  // Each worker's measured peak.
  std::map<std::string, int64_t> measured_peak_bytes_;
  std::map<std::string, bool> waits_;  // each member, when last heard
  std::set<std::string> given_up_;     // lost, their exit not yet reported
  std::set<std::string> told_nodes_;   // have had an answer since the end
  std::vector<Order> orders_;
  std::vector<wire::EventRecord> events_;
};

}  // namespace headroom::coordinator
