#include "coordinator/run/membership.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

#include <algorithm>

namespace headroom::coordinator {
namespace {

// Names become part of log lines and file names.
std::optional<std::string> name_error(const std::string& what,
                                      const std::string& name) {
  constexpr size_t kMaxNameLength = 200;
  if (name.empty()) return what + " is empty";
  if (name.size() > kMaxNameLength) {
    return cat(what, " has ", name.size(), " characters, more than ",
               kMaxNameLength);
  }
  const bool printable = std::all_of(
      name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
  if (!printable) return what + " holds blanks or unprintable characters";
  return std::nullopt;
}

int64_t quiet_limit_ms(const wire::RunProgress& progress) {
  constexpr int64_t kLeastMs = 10'000;
  constexpr int64_t kMedians = 5;
  return std::max(kLeastMs, kMedians * progress.median_step_ms);
}

// The part of the worker's silence that its waits for a core excuse.
int64_t excused_ms(const wire::RunProgress& progress) {
  constexpr int64_t kMostMs = 600'000;
  return std::clamp<int64_t>(progress.core_wait_ms, 0, kMostMs);
}

}  // namespace

std::optional<std::string> Membership::register_node(TimePoint now,
                                                     const Node& node) {
  if (auto why = name_error("node_id", node.node_id)) return why;
  if (node.hostname.size() > 300) return "hostname is longer than 300";
  if (Node* known = find_mutable_node(node.node_id)) {
    if (known->worker_ids == node.worker_ids) return std::nullopt;
    if (auto why = replace_gone(*known, node)) return why;
    std::erase_if(leavers_.not_coming, [this](const std::string& worker_id) {
      return find(worker_id) == nullptr;
    });
    heartbeat_node(now, node.node_id);
    return std::nullopt;
  }
  if (!room_error(node)) return add_node(now, node);
  // Use a copy: silent nodes lose their slots only if this node is accepted.
  Membership next = *this;
  next.forget_silent();
  if (auto why = next.room_error(node)) return why;
  if (auto why = next.add_node(now, node)) return why;
  *this = std::move(next);
  return std::nullopt;
}

// REQUIRES: there is room for the node.
std::optional<std::string> Membership::add_node(TimePoint now,
                                                const Node& node) {
  std::vector<Member> added;
  for (const std::string& worker_id : node.worker_ids) {
    if (auto why = name_error("worker_id", worker_id)) return why;
    const bool twice = std::any_of(
        added.begin(), added.end(),
        [&](const Member& other) { return other.worker_id == worker_id; });
    if (twice || find(worker_id) != nullptr) {
      return "worker " + worker_id + " is registered already";
    }
    Member member;
    member.worker_id = worker_id;
    member.node_id = node.node_id;
    // An agent without a hostname counts as a machine of its own.
    member.hostname = node.hostname.empty() ? node.node_id : node.hostname;
    member.launcher_rank = node.launcher_rank;
    member.local_slot = static_cast<int>(added.size());
    added.push_back(member);
  }
  for (Member& member : added) {
    member_places_[member.worker_id] = members_.size();
    members_.push_back(std::move(member));
  }
  node_places_[node.node_id] = nodes_.size();
  nodes_.push_back(node);
  nodes_.back().last_seen = nodes_.back().last_report = now;
  nodes_.back().silent = false;
  nodes_.back().voice = {.last_heard = now, .all_heard_from = now};
  return std::nullopt;
}

bool Membership::has_joined_workers(const Node& node) const {
  return std::ranges::any_of(node.worker_ids, [&](const std::string& id) {
    return find(id)->state == MemberState::kJoined;
  });
}

bool Membership::may_have_room_later(const Node& node) const {
  return !open_ && find_node(node.node_id) == nullptr && room_error(node) &&
         std::ranges::any_of(nodes_, [this](const Node& other) {
           return !has_joined_workers(other);
         });
}

void Membership::forget_silent() {
  if (open_) return;
  std::set<std::string> forgotten;
  for (const Node& node : nodes_) {
    // All workers of a silent node without joined workers count as gone.
    if (node.silent && !has_joined_workers(node)) {
      forgotten.insert(node.node_id);
    }
  }
  std::erase_if(members_, [&](const Member& member) {
    return forgotten.contains(member.node_id);
  });
  std::erase_if(nodes_, [&](const Node& node) {
    return forgotten.contains(node.node_id);
  });
  find_places();
}

void Membership::find_places() {
  node_places_.clear();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    node_places_[nodes_[i].node_id] = i;
  }
  member_places_.clear();
  for (size_t i = 0; i < members_.size(); ++i) {
    member_places_[members_[i].worker_id] = i;
  }
}

std::optional<std::string> Membership::room_error(const Node& node) const {
  constexpr size_t kMostSlots = 4096;
  constexpr size_t kMostNodes = 4096;
  if (nodes_.size() >= kMostNodes) {
    return cat("this run has ", nodes_.size(), " nodes, the most there may be");
  }
  // An agent without workers costs as much as any other, so the number of such
  // agents is limited.
  constexpr size_t kMostWithoutWorkers = 64;
  const auto offers_nothing = [](const Node& other) {
    return other.worker_ids.empty();
  };
  if (offers_nothing(node) &&
      std::ranges::count_if(nodes_, offers_nothing) >=
          static_cast<std::ptrdiff_t>(kMostWithoutWorkers)) {
    return cat("this run has ", kMostWithoutWorkers,
               " nodes without workers, the most there may be");
  }
  const size_t most =
      open_ ? kMostSlots : static_cast<size_t>(expected_workers_);
  if (members_.size() + node.worker_ids.size() <= most) return std::nullopt;
  return cat("node ", node.node_id, " offers ",
             counted(std::ssize(node.worker_ids), "worker"), ", but ",
             members_.size(), " of this run's ", most, " are registered");
}

// Changes nothing unless all checks succeed.
std::optional<std::string> Membership::replace_gone(Node& known,
                                                    const Node& node) {
  if (known.worker_ids.size() != node.worker_ids.size()) {
    return cat("node ", node.node_id, " is registered already, with ",
               counted(std::ssize(known.worker_ids), "other worker"));
  }
  for (size_t slot = 0; slot < known.worker_ids.size(); ++slot) {
    const std::string& successor = node.worker_ids[slot];
    if (known.worker_ids[slot] == successor) continue;
    if (auto why = name_error("worker_id", successor)) return why;
    if (find(known.worker_ids[slot])->state != MemberState::kGone) {
      return "worker " + known.worker_ids[slot] + " has not left, " +
             successor + " cannot take its place";
    }
    const auto same = [&](const std::string& other) {
      return other == successor;
    };
    if (find(successor) != nullptr ||
        std::count_if(node.worker_ids.begin(), node.worker_ids.end(), same) >
            1) {
      return "worker " + successor + " is registered already";
    }
  }
  for (size_t slot = 0; slot < known.worker_ids.size(); ++slot) {
    if (known.worker_ids[slot] == node.worker_ids[slot]) continue;
    Member* member = find_mutable(known.worker_ids[slot]);
    auto place = member_places_.extract(member->worker_id);
    place.key() = node.worker_ids[slot];
    member_places_.insert(std::move(place));
    member->worker_id = node.worker_ids[slot];
    member->state = MemberState::kExpected;
    known.worker_ids[slot] = node.worker_ids[slot];
  }
  return std::nullopt;
}

std::optional<std::string> Membership::join(TimePoint now,
                                            const std::string& worker_id,
                                            const std::string& node_id) {
  Member* member = find_mutable(worker_id);
  if (member == nullptr) {
    return "worker " + worker_id + " belongs to no registered node";
  }
  if (member->node_id != node_id) {
    return "worker " + worker_id + " belongs to node " + member->node_id +
           ", not to " + node_id;
  }
  if (member->state == MemberState::kJoined) {
    return "worker " + worker_id + " has joined already";
  }
  if (member->state == MemberState::kGone) {
    return "worker " + worker_id + " has left the run";
  }
  member->state = MemberState::kJoined;
  heartbeat_worker(now, worker_id);
  return std::nullopt;
}

bool Membership::heartbeat_worker(
    TimePoint now, const std::string& worker_id,
    std::optional<std::chrono::milliseconds> age) {
  Member* member = find_mutable(worker_id);
  if (member == nullptr || member->state != MemberState::kJoined) return false;
  if (!age) {
    member->last_seen = now;
    find_mutable_node(member->node_id)->voice.note(now);
  } else if (member->is_reported) {
    member->last_seen = now - *age;
  } else {
    // The worker may have sent heartbeats itself while its agent was stopped,
    // so keep the later of the two times.
    member->last_seen = std::max(member->last_seen, now - *age);
  }
  member->is_reported = age.has_value();
  return true;
}

bool Membership::heartbeat_node(TimePoint now, const std::string& node_id) {
  Node* node = find_mutable_node(node_id);
  if (node == nullptr) return false;
  node->last_seen = node->last_report = now;
  node->silent = false;
  node->voice.has_hung_up = false;
  node->voice.note(now);
  return true;
}

void Membership::note_sign_of_life(TimePoint at, const std::string& name) {
  if (Member* member = find_mutable(name)) {
    member->last_seen = std::max(member->last_seen, at);
    find_mutable_node(member->node_id)->voice.note(at);
  }
  if (Node* node = find_mutable_node(name)) {
    node->last_seen = std::max(node->last_seen, at);
    node->voice.note(at);
  }
}

void Membership::note_hangup(const std::string& node_id) {
  if (Node* node = find_mutable_node(node_id)) node->voice.has_hung_up = true;
}

bool Membership::leave(const std::string& worker_id) {
  Member* member = find_mutable(worker_id);
  if (member == nullptr || member->state == MemberState::kGone) return false;
  member->state = MemberState::kGone;
  return true;
}

std::vector<std::string> Membership::leave_absent(const std::string& node_id) {
  std::vector<std::string> absent;
  for (Member& member : members_) {
    if (member.node_id == node_id && member.state == MemberState::kExpected) {
      member.state = MemberState::kGone;
      absent.push_back(member.worker_id);
    }
  }
  return absent;
}

std::optional<std::string> Membership::silence_of(TimePoint now,
                                                  const Member& member) const {
  const Node& node = *find_node(member.node_id);
  NodeVoice voice = node.voice;
  voice.has_hung_up = false;  // describes only the agent's connection
  if (!member.is_reported) {
    return silence_error(now, member.last_seen, voice, limits_);
  }
  // The agent reports for this worker and is silent: the agent's limit applies.
  if (now - node.last_seen > limits_.node) {
    return silence_error(now, node.last_seen, voice, limits_);
  }
  return silence_error(node.last_report, member.last_seen, voice, limits_);
}

Expired Membership::expire(TimePoint now) {
  Expired expired;
  for (Member& member : members_) {
    if (member.state != MemberState::kJoined) continue;
    const auto why = silence_of(now, member);
    if (!why) continue;
    member.state = MemberState::kGone;
    expired.workers.push_back({member.worker_id, *why});
  }
  for (Node& node : nodes_) {
    if (node.silent) continue;
    const auto why = silence_error(now, node.last_seen, node.voice, limits_);
    if (!why) continue;
    node.silent = true;
    expired.nodes.push_back({node.node_id, *why});
  }
  return expired;
}

void Membership::excuse(std::chrono::steady_clock::duration pause) {
  for (Member& member : members_) member.last_seen += pause;
  for (Node& node : nodes_) {
    node.last_seen += pause;
    node.voice.last_heard += pause;
    node.voice.all_heard_from += pause;
  }
}

void Membership::expect_until(TimePoint then) {
  for (Member& member : members_) member.last_seen = then;
  for (Node& node : nodes_) {
    node.last_seen = then;
    node.voice = {.last_heard = then, .all_heard_from = then};
  }
}

const Member* Membership::find(const std::string& worker_id) const {
  const auto place = member_places_.find(worker_id);
  return place == member_places_.end() ? nullptr : &members_[place->second];
}

const Node* Membership::find_node(const std::string& node_id) const {
  const auto place = node_places_.find(node_id);
  return place == node_places_.end() ? nullptr : &nodes_[place->second];
}

bool Membership::is_available(const Member& member) const {
  return member.state == MemberState::kJoined && !is_draining(member.node_id) &&
         !is_released(member.worker_id);
}

std::vector<Member> Membership::available() const {
  std::vector<Member> available;
  for (const Member& member : members_) {
    if (is_available(member)) available.push_back(member);
  }
  return available;
}

int Membership::num_available() const {
  return static_cast<int>(std::ranges::count_if(
      members_, [this](const Member& member) { return is_available(member); }));
}

std::vector<Member> Membership::slots() const {
  std::vector<Member> slots;
  for (const Member& member : members_) {
    if (is_available(member) || !find_node(member.node_id)->silent) {
      slots.push_back(member);
    }
  }
  return slots;
}

int Membership::num_coming() const {
  int count = 0;
  for (const Member& member : members_) {
    const Node& node = *find_node(member.node_id);
    if (node.silent || is_draining(node.node_id)) continue;
    const bool is_coming = member.state == MemberState::kExpected ||
                           (member.state == MemberState::kGone &&
                            !leavers_.not_coming.contains(member.worker_id));
    count += is_coming ? 1 : 0;
  }
  return count;
}

bool Membership::has_agent() const {
  return std::any_of(nodes_.begin(), nodes_.end(), [this](const Node& node) {
    return !node.silent && !is_draining(node.node_id);
  });
}

Member* Membership::find_mutable(const std::string& worker_id) {
  return const_cast<Member*>(std::as_const(*this).find(worker_id));
}

Node* Membership::find_mutable_node(const std::string& node_id) {
  return const_cast<Node*>(std::as_const(*this).find_node(node_id));
}

std::optional<std::string> stall_error(const wire::RunProgress& progress) {
  constexpr int64_t kWorthSayingMs = 1000;
  const int64_t waited = excused_ms(progress);
  if (progress.quiet_ms - waited <= quiet_limit_ms(progress)) {
    return std::nullopt;
  }
  return cat("was stuck in step ", progress.step, ": no sign of life for ",
             progress.quiet_ms, " ms",
             waited < kWorthSayingMs
                 ? ""
                 : cat(", of which ", waited, " ms without a processor core,"),
             " while it waited for nobody");
}

std::optional<std::string> overload_text(const wire::RunProgress& progress) {
  const bool is_long = progress.quiet_ms > quiet_limit_ms(progress);
  const bool waited_mostly = 2 * excused_ms(progress) > progress.quiet_ms;
  if (!is_long || !waited_mostly || stall_error(progress)) return std::nullopt;
  constexpr double kMillisecond = 1e-3;
  const auto seconds = [](int64_t milliseconds) {
    return fixed_text(kMillisecond * static_cast<double>(milliseconds), 1);
  };
  return cat("got no processor core for ", seconds(progress.core_wait_ms),
             " of ", seconds(progress.quiet_ms),
             " s: this machine is overloaded. The rank is slow, not stuck; end "
             "other programs there, or use fewer processes or threads");
}

}  // namespace headroom::coordinator
