// ScriptedRun: a RunState with two or more workers on one node, driven by a
// scripted clock.
#pragma once

#include <string>
#include <vector>

#include "coordinator/run_state.h"

namespace headroom {

class ScriptedRun {
 public:
  // Workers w0, w1, ... under agent n on host h; global batch 16.
  explicit ScriptedRun(int workers) : ScriptedRun(options(workers), config()) {}
  ScriptedRun(const RunOptions& options, const RunConfig& config)
      : workers_(options.quorum.expected_workers),
        state(options, config, now) {}

  static RunOptions options(int workers) {
    RunOptions options;
    options.quorum.expected_workers = workers;
    options.run_directory = "/runs/exp";
    return options;
  }
  static RunConfig config() {
    RunConfig config;
    config.global_batch_size = 16;
    return config;
  }

  static std::string worker(int k) { return "w" + std::to_string(k); }

  void register_node() {
    Node node;
    node.node_id = "n";
    node.hostname = "h";
    for (int k = 0; k < workers_; ++k) node.worker_ids.push_back(worker(k));
    state.register_node(now, node);
  }
  void join(int k) { state.join(now, worker(k), "n"); }
  // Everybody registered, joined and running; orders and events are taken.
  void start() {
    register_node();
    for (int k = 0; k < workers_; ++k) join(k);
    state.take_orders();
    state.take_events();
  }
  // `ms` pass in steps of 100 ms with a heartbeat of everybody but `silent`.
  void pass(int ms, const std::vector<int>& silent = {},
            bool agent_speaks = true) {
    for (int i = 0; i < ms / 100; ++i) {
      now += std::chrono::milliseconds(100);
      if (agent_speaks) state.node_heartbeat(now, "n");
      for (int k = 0; k < workers_; ++k) {
        bool speaks = true;
        for (const int other : silent) speaks = speaks && other != k;
        if (speaks) state.worker_heartbeat(now, worker(k), std::nullopt);
      }
      state.tick(now);
    }
  }
  void complain(int k, int64_t committed_steps) {
    state.worker_failed(now, worker(k), 5, "[communication] peer is gone",
                        committed_steps, true);
  }

  // "w0:run w1:exit" of everything ordered since the last call.
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
    for (const EventRecord& event : state.take_events()) {
      text += (text.empty() ? "" : " ") + event.event;
    }
    return text;
  }

 private:
  int workers_;

 public:
  TimePoint now = TimePoint() + std::chrono::seconds(1000);
  RunState state;
};

}  // namespace headroom
