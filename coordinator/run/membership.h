// Membership: which nodes and workers there are, and when each was last heard.
//
// Pure state: time is an argument, and nothing here knows ranks or the run's
// phase. An agent announces its slots when it registers; until open() all
// agents together may announce `expected_workers`, later ones may add to them.
// Who fell silent before that makes room for another agent.
// A worker that has left does not come back: its agent registers again with a
// successor, under another worker_id, which takes the slot over.
//
// Invariants:
//   1. worker_ids are unique over all nodes;
//   2. a member's state only moves expected -> joined -> gone;
//   3. members() has one entry for each slot, in the order of registration: who
//      was succeeded is no member any more.
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

namespace headroom::coordinator {

enum class MemberState { kExpected, kJoined, kGone };

struct Member {
  std::string worker_id;
  std::string node_id;
  std::string hostname;
  int launcher_rank = 0;
  int local_slot = 0;  // place in its agent's list
  MemberState state = MemberState::kExpected;
  TimePoint last_seen;       // REQUIRES: not kExpected
  bool is_reported = false;  // its agent spoke for it, the last time
};

struct Node {
  std::string node_id;
  std::string hostname;
  int launcher_rank = 0;
  std::vector<std::string> worker_ids;
  TimePoint last_seen;
  TimePoint last_report = {};  // the agent's last heartbeat
  bool silent = false;         // the agent was silent for too long
  NodeVoice voice = {};
};

// Who fell silent in one expire(now), and for how long: "for 2000 ms".
struct SilentProcess {
  std::string id;
  std::string how_long;
};
struct Expired {
  std::vector<SilentProcess> workers;
  std::vector<SilentProcess> nodes;
};

// Who is not to take part, or does not come back.
struct Leavers {
  std::set<std::string> draining_nodes;  // their workers are to leave
  std::set<std::string> released;        // told to exit: nobody's loss
  std::set<std::string> not_coming;      // gone, and not started again
};

class Membership {
 public:
  explicit Membership(int expected_workers, const SilenceLimits& limits = {})
      : expected_workers_(expected_workers), limits_(limits) {}

  // Nothing, or why the node is refused. The same node again (a repeated call
  // whose answer was lost) is no refusal; nor is one that names successors of
  // workers that are gone.
  std::optional<std::string> register_node(TimePoint now, const Node& node);

  // Whether a node that is refused for want of room may ask again: another has
  // no worker there, and may fall silent.
  bool may_have_room_later(const Node& node) const;

  // Allows more slots than the run expected, from now on.
  void open() { open_ = true; }

  // Nothing, or why the worker is refused.
  std::optional<std::string> join(TimePoint now, const std::string& worker_id,
                                  const std::string& node_id);

  // False if nobody of that name takes part (any more).
  // `age`: time since its agent, which speaks for it, has heard it. REQUIRES
  // heartbeat_node(now) before.
  bool heartbeat_worker(TimePoint now, const std::string& worker_id,
                        std::optional<std::chrono::milliseconds> age = {});
  bool heartbeat_node(TimePoint now, const std::string& node_id);

  // The worker or node of that name was heard at `at`, if not later too.
  void note_sign_of_life(TimePoint at, const std::string& name);
  // The connection of the node's agent has ended.
  void note_hangup(const std::string& node_id);

  // What a coordinator before this one knew. REQUIRES: nobody is here yet.
  void restore(std::vector<Node> nodes, std::vector<Member> members,
               Leavers leavers) {
    nodes_ = std::move(nodes);
    members_ = std::move(members);
    leavers_ = std::move(leavers);
    find_places();
  }

  // True if it was not gone before.
  bool leave(const std::string& worker_id);

  // The node's workers that have not joined become gone, and are returned.
  std::vector<std::string> leave_absent(const std::string& node_id);

  // True if it was not so before.
  bool drain_node(const std::string& node_id) {
    return leavers_.draining_nodes.insert(node_id).second;
  }
  bool release(const std::string& worker_id) {
    return leavers_.released.insert(worker_id).second;
  }
  // The worker has ended, and no successor of it is started.
  void expect_no_successor(const std::string& worker_id) {
    leavers_.not_coming.insert(worker_id);
  }

  // Joined workers that are silent become gone; silent nodes are marked, and
  // speak again with their next heartbeat. Each is returned once.
  Expired expire(TimePoint now);

  // The coordinator itself was away for `pause`: nobody is silent for it.
  void excuse(std::chrono::steady_clock::duration pause);
  // Nobody is silent who is heard within the usual time from then on.
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
  // Joined, and neither released nor on a node that is to leave.
  std::vector<Member> available() const;
  int num_available() const;
  // Available members, and slots of agents that are not silent: each slot is
  // one device of its machine.
  std::vector<Member> slots() const;
  // Slots whose worker starts or is started again, on nodes that stay.
  int num_coming() const;
  // Whether any agent stays that is not silent.
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
  // Agents that fell silent before open() make room once no worker of theirs is
  // there.
  void forget_silent();

  int expected_workers_;
  bool open_ = false;
  SilenceLimits limits_;
  std::vector<Node> nodes_;
  std::vector<Member> members_;
  // The places of each name in these two.
  std::unordered_map<std::string, size_t> node_places_;
  std::unordered_map<std::string, size_t> member_places_;
  Leavers leavers_;
};

// stall: is a worker's training thread stuck?
//
// It is if it has shown no sign of life for longer than max(10 s, 5 x the
// median of its steps) though it waits for no peer. Its process may be well and
// speak: only its agent's SIGKILL frees those who wait for it.

// Why it is, as a verb phrase; nothing if it is not.
std::optional<std::string> stall_error(int64_t quiet_ms, int64_t median_step_ms,
                                       int64_t committed_steps);

}  // namespace headroom::coordinator
