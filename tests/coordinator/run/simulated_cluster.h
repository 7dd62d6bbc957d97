// SimulatedCluster: the coordinator's pure core with simulated agents and
// workers, on a virtual clock. Everything random is derived from the seed.
//
//   messages   arrive after a random delay, so they overtake each other; an
//              agent's report of an exit may arrive twice; a cut link delays
//              all messages of a node for seconds
//   workers    join, train in lockstep with their generation, and hold the
//              newest step that they committed; during a commit some may be a
//              step ahead
//   faults     a worker or an agent is killed, a worker is stopped (silent), a
//              link is cut, an agent is drained, another agent starts; the
//              coordinator is killed and restarted from its log: it is not told
//              about streams that ended meanwhile, and calls are repeated
//
// Invariants that are checked at every event: the number of the generation
// never decreases; a worker gets one order to run per generation and none after
// its exit; the next generation consists only of living members that have left
// the previous one; no step that a member of the next generation has committed
// is done again; the phases finished and failed are final. At the end, a run
// that still has an agent must finish.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "coordinator/run/run_state.h"

namespace headroom::coordinator {

class SimulatedCluster {
 public:
  SimulatedCluster(uint64_t seed, int nodes, int workers_per_node);

  // Returns the broken invariant; "" if there is none.
  std::string run();
  int generations() const { return static_cast<int>(seen_generation_); }
  int faults() const { return faults_; }
  int64_t steps_done_again() const { return steps_done_again_; }

 private:
  struct Worker {
    std::string id;
    int node = 0, slot = 0;
    bool alive = true, stopped = false, joined = false, left_for_good = false;
    uint64_t generation = 0;  // the generation that it trains in, or has left
    bool in_generation = false;
    int64_t committed = 0;
    std::set<uint64_t> ordered;  // generations for which it got an order
    bool got_exit = false;
    int64_t last_beat = -1;  // ms; its agent measures it
  };
  struct Agent {
    std::string id;
    bool alive = true, drained = false;
    int64_t cut_until = 0;  // ms
    std::vector<std::string> workers;
    std::map<int, int> successors;
  };
  using Action = std::function<void()>;

  void at(int64_t ms, Action action);
  // Calls the coordinator, over a network of random delays.
  void send(int node, Action action);
  void when_up(Action action);
  void end_stream(const std::string& id);
  void kill_coordinator();
  int64_t random(int64_t low, int64_t high);
  bool chance(int percent) { return random(0, 99) < percent; }
  Worker& worker(const std::string& id) { return workers_.at(id); }

  void add_agent();
  void start_worker(int node, int slot);
  void join(const std::string& id);
  void beat(int node);
  void beat_worker(const std::string& id);
  void kill_worker(const std::string& id);
  void report_exit(const std::string& id, int exit_code);
  void strike();
  void deliver();
  void begin_generation(const std::string& id);
  void step(uint64_t generation);
  void leave(const std::string& id, bool asked);
  void check();
  void fail(const std::string& what);
  TimePoint time() const;

  std::mt19937_64 random_;
  // Whether agents collect their workers' heartbeats.
  const bool agents_gather_;
  const int workers_per_node_;
  int64_t now_ms_ = 1'000'000;
  struct Event {
    int64_t ms;
    int64_t order;
    Action action;
    bool operator<(const Event& other) const {
      return ms != other.ms ? ms > other.ms : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  int64_t num_events_ = 0;
  std::vector<Agent> agents_;
  std::map<std::string, Worker> workers_;
  const int expected_workers_;
  std::unique_ptr<RunState> state_;
  int64_t down_until_ = 0;  // ms: the time of the coordinator's restart
  int term_ = 1;            // increases with each death of the coordinator
  std::map<uint64_t, std::set<std::string>> connected_;  // key: generation
  // The newest committed step, by generation.
  std::map<uint64_t, int64_t> steps_of_;
  uint64_t seen_generation_ = 0;
  RunPhase final_phase_ = RunPhase::kWaiting;
  int64_t steps_done_again_ = 0;
  int64_t last_fault_ms_ = 0;
  int faults_ = 0;
  std::string violation_;
};

}  // namespace headroom::coordinator
