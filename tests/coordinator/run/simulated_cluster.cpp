#include "tests/coordinator/run/simulated_cluster.h"

#include <algorithm>
#include <utility>

#include "coordinator/log/run_state_snapshot.h"

namespace headroom::coordinator {
namespace {

constexpr int64_t kSteps = 400;
constexpr int64_t kStepMs = 40;
constexpr int64_t kFaultsEndMs = 60'000;  // counted from the start
constexpr int64_t kLastMs = 900'000;      // counted from the start
constexpr int64_t kStartMs = 1'000'000;

RunOptions options(int workers) {
  RunOptions options;
  options.quorum.expected_workers = workers;
  options.run_directory = "/runs/exp";
  return options;
}

configs::RunConfig config() {
  configs::RunConfig config;
  config.global_batch_size = 64;
  return config;
}

}  // namespace

SimulatedCluster::SimulatedCluster(uint64_t seed, int nodes,
                                   int workers_per_node)
    : random_(seed),
      agents_gather_(seed % 2 == 1),
      workers_per_node_(workers_per_node),
      expected_workers_(nodes * workers_per_node) {
  state_ =
      std::make_unique<RunState>(options(expected_workers_), config(), time());
  for (int node = 0; node < nodes; ++node) add_agent();
}

TimePoint SimulatedCluster::time() const {
  return TimePoint() + std::chrono::milliseconds(now_ms_);
}

int64_t SimulatedCluster::random(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(random_() %
                                    static_cast<uint64_t>(high - low + 1));
}

void SimulatedCluster::at(int64_t ms, Action action) {
  events_.push({now_ms_ + ms, num_events_++, std::move(action)});
}

void SimulatedCluster::send(int node, Action action) {
  const Agent& from = agents_[static_cast<size_t>(node)];
  const int64_t cut = std::max<int64_t>(0, from.cut_until - now_ms_);
  at(cut + random(0, chance(5) ? 300 : 10),
     [this, call = std::move(action)] { when_up(call); });
}

// If the coordinator is down, the call is made up to a second after its
// restart.
void SimulatedCluster::when_up(Action action) {
  if (now_ms_ >= down_until_) return action();
  at(down_until_ - now_ms_ + random(0, 1000),
     [this, call = std::move(action)] { when_up(call); });
}

void SimulatedCluster::end_stream(const std::string& id) {
  send(worker(id).node, [this, id, term = term_] {
    if (term == term_) state_->worker_disconnected(time(), id);
  });
}

void SimulatedCluster::kill_coordinator() {
  constexpr std::chrono::milliseconds kReadoption = std::chrono::seconds(5);
  if (now_ms_ < down_until_) return;
  ++term_;
  const int64_t down = random(50, 2000);
  down_until_ = now_ms_ + down;
  at(down, [this] {
    auto next = std::make_unique<RunState>(options(expected_workers_), config(),
                                           time());
    RunStateSnapshot::restore(*next, RunStateSnapshot::of(*state_), time(),
                              kReadoption);
    const wire::RunProgress progress = RunStateSnapshot::progress_of(*state_);
    next->committed(progress.step, progress);
    state_ = std::move(next);
  });
}

void SimulatedCluster::fail(const std::string& what) {
  if (violation_.empty()) {
    violation_ = "at " + std::to_string(now_ms_ - kStartMs) + " ms: " + what;
  }
}

void SimulatedCluster::add_agent() {
  const auto node = static_cast<int>(agents_.size());
  Agent agent;
  agent.id = "n" + std::to_string(node);
  for (int slot = 0; slot < workers_per_node_; ++slot) {
    agent.workers.push_back(agent.id + "-" + std::to_string(slot));
  }
  agents_.push_back(agent);
  send(node, [this, node] {
    Agent& from = agents_[static_cast<size_t>(node)];
    if (!from.alive) return;
    Node registration{from.id, "h" + from.id, node, from.workers, {}};
    if (state_->register_node(time(), registration)) return;
    for (int slot = 0; slot < workers_per_node_; ++slot) {
      start_worker(node, slot);
    }
    beat(node);
  });
}

void SimulatedCluster::start_worker(int node, int slot) {
  Agent& agent = agents_[static_cast<size_t>(node)];
  const std::string id = agent.workers[static_cast<size_t>(slot)];
  Worker fresh;
  fresh.id = id;
  fresh.node = node;
  fresh.slot = slot;
  workers_[id] = fresh;
  at(random(100, 1500), [this, id] { join(id); });
}

void SimulatedCluster::join(const std::string& id) {
  if (!worker(id).alive) return;
  send(worker(id).node, [this, id] {
    Worker& one = worker(id);
    if (!one.alive) return;
    if (one.stopped) {
      at(50, [this, id] { join(id); });
      return;
    }
    const Agent& agent = agents_[static_cast<size_t>(one.node)];
    one.joined = !state_->join(time(), id, agent.id);
    if (one.joined) beat_worker(id);
  });
}

void SimulatedCluster::beat_worker(const std::string& id) {
  Worker& one = worker(id);
  if (!one.alive) return;
  if (!one.stopped && agents_gather_) one.last_beat = now_ms_;
  if (!one.stopped && !agents_gather_) {
    send(one.node, [this, id] {
      if (worker(id).alive) {
        state_->worker_heartbeat(time(), id, std::nullopt);
      }
    });
  }
  at(250, [this, id] { beat_worker(id); });
}

void SimulatedCluster::beat(int node) {
  Agent& agent = agents_[static_cast<size_t>(node)];
  if (!agent.alive) return;
  std::map<std::string, std::chrono::milliseconds> ages;
  for (const std::string& id : agent.workers) {
    if (!workers_.contains(id) || !worker(id).alive) continue;
    const int64_t last = worker(id).last_beat;
    if (last >= 0) ages[id] = std::chrono::milliseconds(now_ms_ - last);
  }
  send(node, [this, node, ages] {
    Agent& from = agents_[static_cast<size_t>(node)];
    if (!from.alive) return;
    const NodeAnswer answer = state_->node_heartbeat(time(), from.id);
    for (const auto& [id, age] : ages) {
      state_->worker_heartbeat(time(), id, std::nullopt, age);
    }
    for (const std::string& id : answer.lost_worker_ids) {
      if (workers_.contains(id)) kill_worker(id);
    }
  });
  at(250, [this, node] { beat(node); });
}

void SimulatedCluster::kill_worker(const std::string& id) {
  Worker& one = worker(id);
  if (!one.alive) return;
  one.alive = false;
  one.in_generation = false;
  // Its peers notice the loss at once, or at their next exchange with it.
  const uint64_t number = one.generation;
  for (const std::string& peer : connected_[number]) {
    if (peer == id) continue;
    at(random(1, 30), [this, peer, number] {
      if (worker(peer).generation == number) leave(peer, false);
    });
  }
  if (one.joined) {
    end_stream(id);
  }
  if (agents_[static_cast<size_t>(one.node)].alive) report_exit(id, 137);
}

void SimulatedCluster::report_exit(const std::string& id, int exit_code) {
  const int node = worker(id).node, slot = worker(id).slot;
  const auto report = [this, id, node, slot, exit_code](bool is_first) {
    Agent& agent = agents_[static_cast<size_t>(node)];
    if (!agent.alive) return;
    const RestartDecision decision =
        state_->worker_exited(time(), id, exit_code, "");
    if (!is_first || !decision.restart) return;
    at(decision.delay.count(), [this, node, slot] {
      Agent& from = agents_[static_cast<size_t>(node)];
      if (!from.alive || state_->over()) return;
      from.workers[static_cast<size_t>(slot)] =
          from.id + "-" + std::to_string(slot) + "." +
          std::to_string(++from.successors[slot]);
      send(node, [this, node, slot] {
        Agent& agent_then = agents_[static_cast<size_t>(node)];
        if (!agent_then.alive) return;
        const auto why = state_->register_node(
            time(),
            {agent_then.id, "h" + agent_then.id, node, agent_then.workers, {}});
        if (why) return fail("a successor is refused: " + *why);
        start_worker(node, slot);
      });
    });
  };
  send(node, [report] { report(true); });
  if (chance(20)) at(400, [report] { report(false); });
}

// Members train in lockstep once all of them have joined.
void SimulatedCluster::begin_generation(const std::string& id) {
  Worker& one = worker(id);
  if (!one.alive) return;
  if (one.stopped) {
    at(50, [this, id] { begin_generation(id); });
    return;
  }
  const Generation& generation = state_->generation();
  if (generation.find(id) == nullptr) return;
  one.generation = generation.number;
  one.in_generation = true;
  connected_[generation.number].insert(id);
  int64_t newest = 0;
  for (const RankedMember& member : generation.members) {
    const Worker& other = worker(member.worker_id);
    if (!other.alive) {  // the waiting ranks detect the loss
      const uint64_t number = generation.number;
      at(random(1, 30), [this, id, number] {
        if (worker(id).generation == number) leave(id, false);
      });
      return;
    }
    if (!other.in_generation || other.generation != generation.number) return;
    newest = std::max(newest, other.committed);
  }
  steps_of_[generation.number] = newest;
  for (const RankedMember& member : generation.members) {
    worker(member.worker_id).committed = newest;
  }
  const uint64_t number = generation.number;
  at(kStepMs, [this, number] { step(number); });
}

void SimulatedCluster::step(uint64_t number) {
  if (state_->generation().number != number) return;
  const std::vector<RankedMember> members = state_->generation().members;
  for (const RankedMember& member : members) {
    const Worker& one = worker(member.worker_id);
    if (!one.in_generation || one.generation != number) return;
    if (!one.alive) return;
    if (one.stopped) {  // all ranks wait for this one
      at(100, [this, number] { step(number); });
      return;
    }
  }
  const int64_t next = ++steps_of_[number];
  std::string victim;
  if (now_ms_ < kStartMs + kFaultsEndMs && chance(2)) {
    const auto index = static_cast<size_t>(
        random(0, static_cast<int64_t>(members.size()) - 1));
    victim = members[index].worker_id;
  }
  for (const RankedMember& member : members) {
    // If a member dies during the commit, some members are a step ahead of the
    // others.
    if (!victim.empty() && chance(50)) continue;
    worker(member.worker_id).committed = next;
  }
  if (!victim.empty()) {
    ++faults_;
    last_fault_ms_ = now_ms_;
    kill_worker(victim);
    return;
  }
  const Worker& first = worker(members[0].worker_id);
  send(first.node, [this, next, number] {
    if (state_->generation().number == number) {
      state_->committed(next, std::nullopt);
    }
  });
  if (next >= kSteps) {
    send(first.node, [this, id = first.id, next] {
      if (worker(id).alive) {
        state_->finish(time(), id,
                       {.reason = "done", .result_json = "{}", .step = next});
      }
    });
    return;
  }
  if (state_->leave_requested()) {
    for (const RankedMember& member : members) {
      at(random(0, 5), [this, id = member.worker_id] { leave(id, true); });
    }
    return;
  }
  at(kStepMs, [this, number] { step(number); });
}

void SimulatedCluster::leave(const std::string& id, bool asked) {
  Worker& one = worker(id);
  if (!one.alive || !one.in_generation) return;
  if (one.stopped) {
    at(50, [this, id, asked] { leave(id, asked); });
    return;
  }
  one.in_generation = false;
  const uint64_t number = one.generation;
  for (const std::string& peer : connected_[number]) {
    if (peer != id && !asked) {
      at(random(1, 30), [this, peer, number] {
        if (worker(peer).generation == number) leave(peer, false);
      });
    }
  }
  send(one.node, [this, id, asked, number, steps = one.committed] {
    if (!worker(id).alive || state_->generation().number != number) return;
    if (!asked) {
      state_->worker_failed(time(), id,
                            {.exit_code = 5,
                             .message = "a peer is gone",
                             .kind = wire::FailureKind::kLostPeer,
                             .committed_steps = steps});
      return;
    }
    Leaving leaving;
    leaving.cause = LeavingCause::kAsked;
    leaving.from.committed_steps = steps;
    state_->generation_left(time(), id, leaving);
  });
}

void SimulatedCluster::strike() {
  if (now_ms_ > kStartMs + kFaultsEndMs) return;
  at(random(500, 6000), [this] { strike(); });
  ++faults_;
  last_fault_ms_ = now_ms_;
  const auto node =
      static_cast<int>(random(0, static_cast<int64_t>(agents_.size()) - 1));
  Agent& agent = agents_[static_cast<size_t>(node)];
  const std::string id =
      agent.workers[static_cast<size_t>(random(0, workers_per_node_ - 1))];
  const int64_t kind = random(0, 99);
  if (kind < 10) {
    kill_coordinator();
  } else if (kind < 55) {
    if (workers_.contains(id)) kill_worker(id);
  } else if (kind < 70) {
    if (!workers_.contains(id)) return;
    worker(id).stopped = true;
    at(random(100, 6000), [this, id] { worker(id).stopped = false; });
  } else if (kind < 85) {
    agent.cut_until = now_ms_ + random(50, 4000);
  } else if (kind < 90) {
    add_agent();
  } else if (node != 0 && kind < 95) {  // node 0 remains until the end
    agent.alive = false;
    for (const std::string& mine : agent.workers) {
      if (workers_.contains(mine)) kill_worker(mine);
    }
  } else if (node != 0 && agent.alive && !agent.drained) {
    agent.drained = true;
    send(node, [this, name = agent.id] {
      state_->drain_node(time(), name, "SIGTERM");
    });
  }
}

void SimulatedCluster::deliver() {
  state_->take_events();
  for (const Order& order : state_->take_orders()) {
    Worker& one = worker(order.worker_id);
    if (one.got_exit) fail(order.worker_id + " hears more after its exit");
    if (order.kind == Order::Kind::kExit) {
      one.got_exit = true;
      if (!one.alive) continue;
      at(random(1, 50), [this, id = one.id] {
        Worker& leaver = worker(id);
        if (!leaver.alive) return;
        leaver.alive = false;
        end_stream(id);
        if (agents_[static_cast<size_t>(leaver.node)].alive) {
          report_exit(id, 0);
        }
      });
      continue;
    }
    if (order.kind != Order::Kind::kRun) continue;
    const uint64_t number = state_->generation().number;
    if (!one.ordered.insert(number).second) {
      fail(order.worker_id + " is to run generation " + std::to_string(number) +
           " twice");
    }
    if (one.alive && one.in_generation) {
      fail(order.worker_id + " has not left generation " +
           std::to_string(one.generation));
    }
    at(random(1, 40), [this, id = one.id, number] {
      if (state_->generation().number == number) begin_generation(id);
    });
  }
}

void SimulatedCluster::check() {
  const Generation& generation = state_->generation();
  if (generation.number < seen_generation_) fail("a generation's number falls");
  if (generation.number > seen_generation_ && generation.number > 1) {
    // Checks that the generation begins at the newest step that a member which
    // still runs has committed.
    int64_t held = 0;
    for (const RankedMember& member : generation.members) {
      held = std::max(held, worker(member.worker_id).committed);
    }
    for (const auto& [number, newest] : steps_of_) {
      if (number + 1 == generation.number && held < newest) {
        steps_done_again_ = std::max(steps_done_again_, newest - held);
      }
    }
    if (generation.begin.committed_steps < held) {
      fail("generation " + std::to_string(generation.number) +
           " is to begin after " +
           std::to_string(generation.begin.committed_steps) +
           " steps, but a member has " + std::to_string(held));
    }
  }
  seen_generation_ = generation.number;
  const bool was_over =
      final_phase_ == RunPhase::kFinished || final_phase_ == RunPhase::kFailed;
  if (was_over && state_->phase() != final_phase_)
    fail("the end was not final");
  final_phase_ = state_->phase();
}

std::string SimulatedCluster::run() {
  std::function<void()> tick = [&] {
    if (now_ms_ >= down_until_) state_->tick(time());
    at(50, tick);
  };
  at(0, tick);
  at(3000, [this] { strike(); });
  while (violation_.empty() && !state_->over()) {
    Event next = events_.top();
    events_.pop();
    now_ms_ = next.ms;
    if (now_ms_ > kStartMs + kLastMs) {
      return "no end after " + std::to_string(kLastMs) +
             " ms: " + to_string(state_->phase()) + ": " + state_->reason();
    }
    next.action();
    deliver();
    check();
  }
  if (violation_.empty() && state_->phase() == RunPhase::kFailed) {
    return "failed: " + state_->reason();
  }
  return violation_;
}

}  // namespace headroom::coordinator
