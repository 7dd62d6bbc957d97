// RunState: one run from the first registration to its exit code, as a state
// machine without clock, network or thread.
//
//   waiting --all joined--> running --rank 0 finishes--> finished | failed
//                            |   ^                            ^
//      a worker leaves, or is|   |the live members have       |
//      lost, or reports a    |   |left: next generation       |
//      lost peer             v   |                            |
//                         regrouping --no generation possible-+
//                            |
//                            v
//                        stopping --saved, or nothing to save--> failed
//
// If a worker is lost in `waiting`, the run waits for its successor or stops.
//
// Each call reports one event, with its time as an argument. The resulting
// actions are read with take_orders() and take_events().
//
// Threads: none of its own. The service calls RunState under one mutex, which
// guards all members of RunState.
//
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

// How long a coordinator stays to report the end of the run to all processes.
inline constexpr std::chrono::milliseconds kFarewell = std::chrono::seconds(5);

// Extra time, beyond the usual heartbeat limits, in which workers and agents
// may find a restarted coordinator.
inline constexpr std::chrono::milliseconds kReadoption =
    std::chrono::seconds(5);

// An order to a worker, sent over its stream of assignments.
struct Order {
  enum class Kind { kRun, kSaveAndExit, kExit };
  Kind kind = Kind::kExit;
  std::string worker_id;
  std::string reason;
};

// The reply to a heartbeat of a node's agent.
struct NodeAnswer {
  bool known = false;
  std::vector<std::string> lost_worker_ids;
};

class RunState {
 public:
  // REQUIRES: choose_plan(config, options.quorum.expected_workers,
  // options.layers) finds a plan.
  RunState(const RunOptions& options, const configs::RunConfig& config,
           TimePoint now);
  RunState(const RunState&) = delete;
  RunState& operator=(const RunState&) = delete;

  // --- events; a returned text is a refusal ---------------------------------
  std::optional<std::string> register_node(TimePoint now, Node node);
  std::optional<std::string> join(TimePoint now, const std::string& worker_id,
                                  const std::string& node_id);
  // Returns false if the worker is not a joined member. `age`: if the agent
  // reports for the worker, the time since the worker's last message to the
  // agent.
  bool worker_heartbeat(TimePoint now, const std::string& worker_id,
                        const std::optional<wire::RunProgress>& progress,
                        std::optional<std::chrono::milliseconds> age = {});
  // Records whether that member is waiting for its peers now.
  void note_waiting(const std::string& worker_id, bool waits) {
    waits_[worker_id] = waits;
  }
  // Records that a message from this worker or node arrived at `at`.
  void note_sign_of_life(TimePoint at, const std::string& name) {
    membership_.note_sign_of_life(at, name);
  }
  // Records that the connection of the node's agent has ended.
  void note_hangup(const std::string& node_id) {
    membership_.note_hangup(node_id);
  }
  NodeAnswer node_heartbeat(TimePoint now, const std::string& node_id);
  // What a rank says of its speed (worker/step/stragglers.h); "" if it is no
  // longer slow. status() shows it until the generation ends.
  void note_speed(int rank, const std::string& what) {
    slow_ranks_[rank] = what;
  }
  // Rank 0 has measured the network; later plans use these rates.
  void note_network(const plan::NetworkRates& network) {
    config_.network = network;
  }
  // If this process was paused since the last tick (a paused machine, SIGSTOP),
  // gives all other processes time to reconnect. Call it before reporting any
  // event that happened after the pause.
  void note_pause(TimePoint now);
  // True for kReadoption after a pause, during which other processes may reopen
  // connections that broke.
  bool is_readopting(TimePoint now) const { return now < readopting_until_; }
  // Records that the worker's stream of assignments has ended.
  void worker_disconnected(TimePoint now, const std::string& worker_id);
  // Returns whether the agent should start a successor. The agent registers the
  // successor before it starts it. `host_memory`: the limit at which the kernel
  // killed the worker because the host's memory ran out, or "". After such a
  // kill, the next generation uses less of the host's memory, if that is
  // possible.
  RestartDecision worker_exited(TimePoint now, const std::string& worker_id,
                                int exit_code, const std::string& last_words,
                                const std::string& host_memory = "");
  void worker_failed(TimePoint now, const std::string& worker_id,
                     const wire::WorkerFailure& failure);
  // The worker's card failed (failure.card_fault), so the worker is lost.
  void card_failed(TimePoint now, const std::string& worker_id,
                   const wire::WorkerFailure& failure);
  // The worker has left its generation at a committed step.
  std::optional<std::string> generation_left(TimePoint now,
                                             const std::string& worker_id,
                                             const Leaving& leaving);
  // The worker has reached the rendezvous of its generation.
  void note_arrival(const std::string& worker_id) {
    cycle_.note_arrival(worker_id);
  }
  void committed(int64_t step,
                 const std::optional<wire::RunProgress>& progress);
  // Records that this worker has written the run's folder, on its machine.
  void note_writer(const std::string& worker_id);
  std::optional<std::string> finish(TimePoint now, const std::string& worker_id,
                                    const wire::FinishedRun& finished);
  void drain(TimePoint now, const std::string& reason);
  // This node's workers leave at the next committed step. The run continues on
  // the other nodes; if there is no other node, the whole run is drained.
  void drain_node(TimePoint now, const std::string& node_id,
                  const std::string& reason);
  void stop(TimePoint now, const std::string& reason);
  // Reports the current time. Call it several times a second.
  void tick(TimePoint now);

  // --- actions to carry out -------------------------------------------------
  std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  std::vector<wire::EventRecord> take_events() {
    return std::exchange(events_, {});
  }

  // --- queries --------------------------------------------------------------
  RunPhase phase() const { return phase_; }
  bool over() const {
    return phase_ == RunPhase::kFinished || phase_ == RunPhase::kFailed;
  }
  // True once the run is over and kFarewell has passed. Also true earlier, if
  // no worker is connected, every node that is not silent has received a reply
  // since the end, and no client still follows the events.
  bool everybody_told(TimePoint now, bool followers_left) const;
  bool stop_requested() const { return stop_requested_; }
  // Members should leave their generation at the next committed step.
  bool leave_requested() const { return cycle_.leave_requested(); }
  // True if a member of this generation is lost and the other members must
  // leave it: for the next generation, or because the run ends.
  bool peer_lost() const {
    return (phase_ == RunPhase::kRegrouping && cycle_.regrouping().has_loss) ||
           (phase_ == RunPhase::kStopping && ending_.loss.has_value()) ||
           phase_ == RunPhase::kFailed;
  }
  // True if some member last reported that it is not waiting for peers. That
  // member is only late, and the other members wait for it.
  bool a_member_works() const {
    return std::ranges::any_of(waits_, [this](const auto& entry) {
      return !entry.second && cycle_.rank_of(entry.first) >= 0;
    });
  }
  // The machine that has the run's folder, and the steps committed there.
  FolderPlace folder() const;
  int exit_code() const { return exit_code_; }
  const std::string& reason() const { return reason_; }
  const Generation& generation() const { return cycle_.generation(); }
  // The run's configuration with the decided device and precision; "" until the
  // first generation is formed.
  const std::string& settled_config_yaml() const {
    return settled_config_yaml_;
  }
  const Membership& membership() const { return membership_; }
  const CardFailures& cards() const { return cards_; }
  RunStatus status(TimePoint now) const;

 private:
  friend class RunStateSnapshot;  // reads and restores the logged members

  void advance(TimePoint now);
  void advance_waiting(TimePoint now);
  void advance_running(TimePoint now);
  void advance_regrouping(TimePoint now);
  void advance_stopping(TimePoint now);
  // Chooses the cards of a node that registers, or returns why the node is
  // refused. While the run still waits for its workers, a refusal ends the run,
  // because no other node can replace the refused one.
  std::optional<std::string> place_on_cards(TimePoint now, Node& node);
  // Reports that a worker was lost because the host's memory ran out, and
  // lowers the amount of that memory that later generations may use. Returns
  // false if they already used the smallest amount.
  bool take_less_host_memory(const Loss& loss);
  // After a failed check of float16, the next generations use float32, with
  // another plan. Ends the run if none fits.
  void take_float32(TimePoint now, const std::string& why);
  // Ends the run and returns false if the run cannot compute on its nodes.
  bool settle_devices(TimePoint now);
  void form_first_generation(TimePoint now, int workers,
                             const std::string& reason);
  void form_generation(TimePoint now, const plan::Plan& plan,
                       const ResumePoint& begin, const std::string& reason);
  void release_drained();
  void lose_if_stuck(TimePoint now, const std::string& worker_id,
                     const wire::RunProgress& progress);
  // Counts the worker as lost. Its agent must then end the process.
  void give_up(TimePoint now, const std::string& worker_id,
               const std::string& how);
  void lose(TimePoint now, Loss loss);
  bool can_regroup() const;
  // Whether a worker that is lost now may get a successor.
  bool may_have_successor() const;
  // Ends the run, and returns true, if all cards are left out and no worker can
  // join. REQUIRES: kRegrouping.
  bool end_without_cards(TimePoint now);
  void begin_regrouping(TimePoint now);
  void begin_stopping(TimePoint now);
  void end(TimePoint now, int exit_code, const EndReason& reason);
  void emit(EventKind event, int rank, const std::string& reason,
            bool warning = false, const std::string& detail_json = "");
  // `explained`: whether `how` gives the cause.
  Loss loss_of(const std::string& worker_id, const std::string& how,
               bool explained = false) const;

  const RunOptions options_;
  // The request, with the network rates once they are measured. Device and
  // precision are decided when the first generation is formed.
  configs::RunConfig config_;
  std::string settled_config_yaml_;
  Membership membership_;
  RunPhase phase_ = RunPhase::kWaiting;
  std::string reason_;
  int exit_code_ = 0;
  bool says_how_to_go_on_ = false;  // reason_ contains the resume command
  RunEnding ending_;                // valid from kStopping on
  FolderPlace folder_;              // its steps are in progress_
  GenerationCycle cycle_;
  std::optional<TimePoint> waiting_since_;  // time of the first registration
  TimePoint last_tick_;
  TimePoint readopting_until_;
  TimePoint over_since_;
  bool stop_requested_ = false;
  wire::RunProgress progress_;
  std::string result_json_;
  // The restart decision for each worker whose end was reported, kept until the
  // worker is replaced, because the report may arrive twice.
  std::map<std::string, RestartDecision> restarts_;
  // Commits of all generations, including repeated steps.
  int64_t num_commits_ = 0;
  CardFailures cards_;
  // The restart budget of each slot, by node and slot.
  std::map<std::pair<std::string, int>, RestartBudget> restart_budgets_;
  // The largest measured memory of each worker.
  std::map<std::string, int64_t> measured_peak_bytes_;
  std::map<int, std::string> slow_ranks_;
  // Whether each worker was waiting for peers when it last reported.
  std::map<std::string, bool> waits_;
  // Lost workers whose exit is not reported yet.
  std::set<std::string> given_up_;
  // Workers whose waits for a processor core were reported.
  std::set<std::string> said_slow_;
  std::set<std::string> told_nodes_;  // nodes that got a reply since the end
  std::vector<Order> orders_;
  std::vector<wire::EventRecord> events_;
};

}  // namespace headroom::coordinator
