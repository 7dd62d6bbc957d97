// Membership: the nodes and workers of a run, and when each last sent a
// message.
//
// Pure state: time is an argument, and the class uses neither ranks nor the
// run's phase. An agent announces its slots when it registers. Until open(),
// all agents together may announce `expected_workers` slots; later agents may
// add more. An agent that fell silent before open() makes room for another
// agent. A worker that has left does not return: its agent registers again,
// with a successor under another worker_id, which takes over the slot.
//
// Invariants:
//   1. worker_ids are unique over all nodes;
//   2. a member's state only moves expected -> joined -> gone;
//   3. members() has one entry for each slot, in order of registration;
//      a worker that was replaced is no longer a member.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coordinator/run/clock.h"
#include "coordinator/run/silence.h"
#include "proto/reports.h"
#include "proto/run_progress.h"

namespace headroom::coordinator {

enum class MemberState { kExpected, kJoined, kGone };

struct Member {
  std::string worker_id;
  std::string node_id;
  std::string hostname;
  int launcher_rank = 0;
  int local_slot = 0;  // index in its agent's list
  MemberState state = MemberState::kExpected;
  TimePoint last_seen;       // time of the last message; unused for kExpected
  bool is_reported = false;  // the last heartbeat came through its agent
};

struct Node {
  std::string node_id;
  std::string hostname;
  int launcher_rank = 0;
  std::vector<std::string> worker_ids;
  std::vector<wire::NodeCard> cards = {};  // cards that its agent found
  // Why the agent found no card. If `cards` is empty and this is "", the agent
  // did not look for cards.
  std::string no_card_reason = {};
  // Unusable cards with the reasons; "" if there are none.
  std::string unusable_cards = {};
  int launcher_size = 0;     // agents of its launcher; 0 without a launcher
  int first_local_slot = 0;  // workers of earlier agents on its machine
  // For each slot, the index of its card, as numbered in `cards`; -1 if no card
  // is chosen (device_choice.h). The list is as long as worker_ids, or empty.
  std::vector<int64_t> slot_cards = {};
  TimePoint last_seen = {};
  TimePoint last_report = {};  // the agent's last heartbeat
  bool silent = false;         // the agent was silent for too long
  // When messages of the agent and its workers arrived.
  NodeVoice voice = {};
};

// A process that became silent in expire(now), and its limit: "for 2000 ms".
struct SilentProcess {
  std::string id;
  std::string how_long;
};
struct Expired {
  std::vector<SilentProcess> workers;
  std::vector<SilentProcess> nodes;
};

// Workers and nodes that leave the run, or do not return.
struct Leavers {
  std::set<std::string> draining_nodes;  // nodes whose workers must leave
  std::set<std::string> released;        // workers ordered to exit
  std::set<std::string> not_coming;      // ended workers without a successor
};

class Membership {
 public:
  explicit Membership(int expected_workers, const SilenceLimits& limits = {})
      : expected_workers_(expected_workers), limits_(limits) {}

  // Returns why the node is refused, or nullopt. Registering the same node
  // again (a repeated call whose reply was lost) succeeds, also with successors
  // in place of workers that are gone.
  std::optional<std::string> register_node(TimePoint now, const Node& node);

  // Returns true if a node that is refused for lack of room may ask again,
  // because some other node has no joined worker and may become silent.
  bool may_have_room_later(const Node& node) const;

  bool has_room(const Node& node) const { return !room_error(node); }

  // From now on allows more slots than the run expected.
  void open() { open_ = true; }

  // Returns why the worker is refused, or no value.
  std::optional<std::string> join(TimePoint now, const std::string& worker_id,
                                  const std::string& node_id);

  // Returns false if the worker is not a joined member. If the agent reports
  // for the worker, `age` is the time since the worker's last message to the
  // agent, and heartbeat_node(now) must be called first.
  bool heartbeat_worker(TimePoint now, const std::string& worker_id,
                        std::optional<std::chrono::milliseconds> age = {});
  bool heartbeat_node(TimePoint now, const std::string& node_id);

  // Records that a message from this worker or node arrived at `at`.
  void note_sign_of_life(TimePoint at, const std::string& name);
  // Records that the connection of the node's agent has ended.
  void note_hangup(const std::string& node_id);

  // Restores the state of a previous coordinator. REQUIRES: no node has
  // registered.
  void restore(std::vector<Node> nodes, std::vector<Member> members,
               Leavers leavers) {
    nodes_ = std::move(nodes);
    members_ = std::move(members);
    leavers_ = std::move(leavers);
    find_places();
  }

  // Returns false if the worker was gone already.
  bool leave(const std::string& worker_id);

  // Marks the node's workers that have not joined as gone, and returns them.
  std::vector<std::string> leave_absent(const std::string& node_id);

  // Returns false if the node was draining already.
  bool drain_node(const std::string& node_id) {
    return leavers_.draining_nodes.insert(node_id).second;
  }
  bool release(const std::string& worker_id) {
    return leavers_.released.insert(worker_id).second;
  }
  // Records that the worker has ended and gets no successor.
  void expect_no_successor(const std::string& worker_id) {
    leavers_.not_coming.insert(worker_id);
  }

  // Marks silent workers as gone and silent nodes as silent, and returns each
  // of them once. A silent node becomes active again with its next heartbeat.
  Expired expire(TimePoint now);

  // Call when the coordinator was paused for `pause`: all times of last
  // messages move by this time, so that the pause makes no process silent.
  void excuse(std::chrono::steady_clock::duration pause);
  // Sets the time of every process's last message to `then`, which may be in
  // the future.
  void expect_until(TimePoint then);

  const Member* find(const std::string& worker_id) const;
  const Node* find_node(const std::string& node_id) const;
  const std::vector<Member>& members() const { return members_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const Leavers& leavers() const { return leavers_; }
  bool is_draining(const std::string& node_id) const {
    return leavers_.draining_nodes.contains(node_id);
  }
  bool is_released(const std::string& worker_id) const {
    return leavers_.released.contains(worker_id);
  }
  // Workers that joined, are not released, and whose node is not draining.
  std::vector<Member> available() const;
  int num_available() const;
  // Available members, and all slots of agents that are not silent. Each slot
  // is one device of its machine.
  std::vector<Member> slots() const;
  // Number of slots whose worker is starting or restarting. Nodes that are
  // leaving the run are excluded.
  int num_coming() const;
  // Returns true if at least one node that is not leaving the run has an agent
  // that still sends heartbeats.
  bool has_agent() const;

 private:
  Member* find_mutable(const std::string& worker_id);
  Node* find_mutable_node(const std::string& node_id);
  void find_places();
  bool is_available(const Member& member) const;
  std::optional<std::string> silence_of(TimePoint now,
                                        const Member& member) const;
  std::optional<std::string> replace_gone(Node& known, const Node& node);
  std::optional<std::string> room_error(const Node& node) const;
  std::optional<std::string> add_node(TimePoint now, const Node& node);
  bool has_joined_workers(const Node& node) const;
  // Removes agents that became silent before open() and have no joined worker.
  void forget_silent();

  int expected_workers_;
  bool open_ = false;
  SilenceLimits limits_;
  std::vector<Node> nodes_;
  std::vector<Member> members_;
  // Index of each node in nodes_ and of each member in members_, by name.
  std::unordered_map<std::string, size_t> node_places_;
  std::unordered_map<std::string, size_t> member_places_;
  Leavers leavers_;
};

// Detects a stuck training thread. A worker is stuck if it has made no progress
// for longer than max(10 s, 5 x its median step time) while it waits for no
// peer. Its process may still send heartbeats, so only SIGKILL by its agent
// frees the peers that wait for the worker. The time in which the worker had no
// processor core does not count, up to 10 minutes: the worker is only slow
// then. Returns the reason as a verb phrase; nullopt if the worker is not
// stuck.
std::optional<std::string> stall_error(const wire::RunProgress& progress);

// If a worker would count as stuck, had it not mostly waited for a core,
// returns how long it waited, as a verb phrase.
std::optional<std::string> overload_text(const wire::RunProgress& progress);

}  // namespace headroom::coordinator
