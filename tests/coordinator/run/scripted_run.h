// ScriptedRun: a RunState with two or more workers on one node, driven by a
// scripted clock.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/run_state.h"

namespace headroom::coordinator {

class ScriptedRun {
 public:
  // Workers w0, w1, ... under agent n on host h; global batch 16.
  explicit ScriptedRun(int workers) : ScriptedRun(options(workers), config()) {}
  ScriptedRun(const RunOptions& options, const configs::RunConfig& config)
      : workers_(options.quorum.expected_workers), state(options, config, now) {
    for (int k = 0; k < workers_; ++k) names_.push_back(worker(k));
  }

  static RunOptions options(int workers) {
    RunOptions options;
    options.quorum.expected_workers = workers;
    options.run_directory = "/runs/exp";
    return options;
  }
  static configs::RunConfig config() {
    configs::RunConfig config;
    config.global_batch_size = 16;
    return config;
  }

  static std::string worker(int k) { return "w" + std::to_string(k); }

  std::optional<std::string> register_node() {
    Node node;
    node.node_id = "n";
    node.hostname = "h";
    node.worker_ids = names_;
    return state.register_node(now, node);
  }
  void join(int k) { state.join(now, names_[static_cast<size_t>(k)], "n"); }
  // The agent starts the next worker of slot k, which joins: "w1.1", "w1.2", …
  std::optional<std::string> succeed(int k) {
    register_successor(k);
    return state.join(now, names_[static_cast<size_t>(k)], "n");
  }
  std::optional<std::string> register_successor(int k) {
    std::string& name = names_[static_cast<size_t>(k)];
    name = worker(k) + "." + std::to_string(++successors_[k]);
    return register_node();
  }
  // All members are registered, joined and running; orders and events are
  // consumed.
  void start() {
    register_node();
    for (int k = 0; k < workers_; ++k) join(k);
    state.take_orders();
    state.take_events();
  }
  // Lets `ms` pass in steps of 100 ms. At each step every member sends a
  // heartbeat, except those in `silent`.
  void pass(int ms, const std::vector<int>& silent = {},
            bool agent_speaks = true) {
    for (int i = 0; i < ms / 100; ++i) {
      now += std::chrono::milliseconds(100);
      if (agent_speaks) state.node_heartbeat(now, "n");
      for (int k = 0; k < workers_; ++k) {
        bool speaks = true;
        for (const int other : silent) speaks = speaks && other != k;
        if (speaks) {
          state.worker_heartbeat(now, names_[static_cast<size_t>(k)],
                                 std::nullopt);
        }
      }
      state.tick(now);
    }
  }
  void complain(int k, int64_t committed_steps) {
    state.worker_failed(now, names_[static_cast<size_t>(k)],
                        {.exit_code = 5,
                         .message = "[communication] peer is gone",
                         .kind = wire::FailureKind::kLostPeer,
                         .can_go_on = true,
                         .committed_steps = committed_steps});
  }

  // Report to the state at the current time.
  RestartDecision exits(const std::string& worker_id, int code = 137,
                        const std::string& last_words = "",
                        const std::string& host_memory = "") {
    return state.worker_exited(now, worker_id, code, last_words, host_memory);
  }
  void fails(const std::string& worker_id, const wire::WorkerFailure& failure) {
    state.worker_failed(now, worker_id, failure);
  }
  void disconnects(const std::string& worker_id) {
    state.worker_disconnected(now, worker_id);
  }
  std::optional<std::string> leaves(const std::string& worker_id,
                                    const Leaving& leaving) {
    return state.generation_left(now, worker_id, leaving);
  }
  std::optional<std::string> finish(const std::string& worker_id,
                                    const wire::FinishedRun& finished) {
    return state.finish(now, worker_id, finished);
  }
  void commit(int64_t step) { state.committed(step, std::nullopt); }

  RunPhase phase() const { return state.phase(); }
  int exit_code() const { return state.exit_code(); }
  const std::string& reason() const { return state.reason(); }
  const Generation& generation() const { return state.generation(); }
  // Workers that the agent is told to kill.
  std::vector<std::string> to_be_killed() {
    return state.node_heartbeat(now, "n").lost_worker_ids;
  }
  // All orders since the last call, as "w0:run w1:exit".
  std::string orders() {
    std::string text;
    for (const Order& order : state.take_orders()) {
      const char* kind = order.kind == Order::Kind::kRun    ? ":run"
                         : order.kind == Order::Kind::kExit ? ":exit"
                                                            : ":save";
      text += (text.empty() ? "" : " ") + order.worker_id + kind;
    }
    return text;
  }
  std::string events() {
    std::string text;
    for (const wire::EventRecord& event : state.take_events()) {
      text += (text.empty() ? "" : " ") + to_string(event.event);
    }
    return text;
  }

 private:
  int workers_;
  std::vector<std::string> names_;  // the newest worker of each slot
  std::map<int, int> successors_;

 public:
  TimePoint now = TimePoint() + std::chrono::seconds(1000);
  RunState state;
};

}  // namespace headroom::coordinator
