#include "parallel/collectives/shared_group.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"

namespace headroom::collectives {

int64_t memory_identity() {
  // The kernel generates a new boot_id at every boot.
  std::string identity;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), identity);
  struct stat name_space = {};
  if (stat("/proc/self/ns/pid", &name_space) == 0) {
    identity += cat(" ", name_space.st_ino);
  }
  identity += cat(" ", geteuid());
  return static_cast<int64_t>(std::hash<std::string>{}(identity));
}

namespace {
constexpr size_t kReasonBytes = 512;
}  // namespace

// The start of every segment. Peers read it in their own mapping, so it has no
// pointers and only lock-free atomics.
struct SharedGroup::Shared {
  // Fields of the segment's owner.
  alignas(64) std::atomic<uint64_t> meetings;  // meetings the owner reached
  std::atomic<uint32_t> has_left;
  std::atomic<int32_t> waits_for = -1;  // see note_wait()
  Signature signatures[2];

  // Fields of the group, used only in rank 0's segment.
  alignas(64) std::atomic<uint32_t> activity;  // futex; counts changes
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> has_failed;
  std::atomic<uint32_t> has_reason;  // one rank writes the reason, once
  char reason[kReasonBytes];
};

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBookkeepingBytes = 4096;
constexpr int kSpins = 1000;
// Time between two checks for lost peers.
constexpr timespec kSleep{0, 5'000'000};

constexpr size_t segment_bytes() {
  return kBookkeepingBytes + 2 * SharedGroup::kPartBytes;
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Works between processes, unlike std::atomic::wait.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &kSleep, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// The data that each rank sends to the others to connect.
struct Invitation {
  int64_t machine = 0;
  int64_t is_ready = 0;
  SegmentAddress address;
};
int watch_process(int64_t process) {
  const long descriptor = syscall(SYS_pidfd_open, process, 0);
  if (descriptor < 0) {
    throw Error(
        "shared_memory",
        cat("cannot watch process ", process, ": ", std::strerror(errno)),
        "ranks of this host exchange over the network instead");
  }
  return static_cast<int>(descriptor);
}

}  // namespace

SharedGroup::Shared& SharedGroup::Member::shared() const {
  return *std::launder(reinterpret_cast<Shared*>(segment.data()));
}

SharedGroup::Machines SharedGroup::connect(Communicator& ranks, int64_t machine,
                                           std::chrono::milliseconds timeout,
                                           std::string& reason) {
  static_assert(sizeof(Shared) <= kBookkeepingBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                std::atomic<uint32_t>::is_always_lock_free);
  std::optional<SharedSegment> own;
  Invitation mine{machine, 0, {}};
  reason.clear();
  try {
    own = SharedSegment::create(segment_bytes());
    new (own->data()) Shared{};
    mine.is_ready = 1;
    mine.address = own->address();
  } catch (const Error& error) {
    reason = error.text();
  }
  const std::vector<Invitation> all = tell_all(ranks, mine);
  Machines machines;
  std::set<int64_t> met;
  std::vector<int> names;
  std::vector<SegmentAddress> addresses;
  int position = 0;
  bool can = true;  // equal on all ranks
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const Invitation& one = all[static_cast<size_t>(rank)];
    can &= one.is_ready != 0;
    if (met.insert(one.machine).second) machines.leaders.push_back(rank);
    if (one.machine != machine) continue;
    if (rank == ranks.rank()) position = static_cast<int>(names.size());
    names.push_back(rank);
    addresses.push_back(one.address);
  }
  // Each rank is alone on its machine.
  if (met.size() == all.size()) return machines;
  if (can && names.size() > 1) {
    machines.here.reset(
        new SharedGroup(position, std::move(names), ranks.size(), timeout));
    try {
      machines.here->open(std::move(*own), addresses);
    } catch (const Error& error) {
      reason = error.text();
      can = false;
    }
  }
  if (all_agree(ranks, can)) return machines;
  if (reason.empty()) reason = "a peer cannot";
  return {};
}

void SharedGroup::open(SharedSegment own,
                       const std::vector<SegmentAddress>& addresses) {
  for (const SegmentAddress& address : addresses) {
    if (static_cast<int>(members_.size()) == rank_) {
      members_.push_back({std::move(own), -1});
      continue;
    }
    // Watch the process before opening: if the token then matches, the watched
    // process is the peer.
    const int watched =
        address.process == getpid() ? -1 : watch_process(address.process);
    members_.push_back(
        {SharedSegment::open(address, segment_bytes()), watched});
  }
  for (const Member& member : members_) {
    std::byte* const parts = member.segment.data() + kBookkeepingBytes;
    parts_[0].push_back(parts);
    parts_[1].push_back(parts + kPartBytes);
  }
}

SharedGroup::~SharedGroup() {
  for (const Member& member : members_) {
    if (member.process_descriptor >= 0) close(member.process_descriptor);
  }
  if (parts_[0].empty()) return;  // the group was never connected
  members_[rank_].shared().has_left.store(1);
  announce();
}

void SharedGroup::announce() {
  Shared& group = members_[0].shared();
  group.activity.fetch_add(1);
  if (group.sleepers.load() > 0) futex_wake_all(group.activity);
}

int SharedGroup::missing() const {
  for (int rank = 0; rank < size(); ++rank) {
    if (members_[rank].shared().meetings.load(std::memory_order_acquire) <
        meetings_) {
      return rank;
    }
  }
  return -1;
}

const std::vector<std::byte*>& SharedGroup::begin(const Signature& signature) {
  side_ = 1 - side_;
  members_[rank_].shared().signatures[side_] = signature;
  checked_ = false;
  return parts_[side_];
}

void SharedGroup::meet(const char* operation) {
  throw_if_failed(operation);
  ++meetings_;
  members_[rank_].shared().meetings.store(meetings_);
  announce();
  for (int spin = 0; spin < kSpins && missing() >= 0; ++spin) pause_briefly();
  if (missing() >= 0) await_members(operation);
  if (!checked_) check_signatures(operation);
}

void SharedGroup::await_members(const char* operation) {
  Shared& group = members_[0].shared();
  PeerPatience patience(timeout_, Clock::now());
  std::atomic<bool> is_aborted = false;
  const AbortableWait abortable([&is_aborted] { is_aborted = true; });
  for (;;) {
    const uint32_t seen = group.activity.load();
    const bool has_failed = group.has_failed.load() != 0;
    const int member = missing();
    if (member < 0) break;
    if (has_failed) fail(operation, group.reason);
    throw_if_gone(member, operation);
    if (is_aborted) fail(operation, "aborted: a peer is lost");
    awaited_ = awaited_through(member);
    if (patience.is_over(Clock::now(), PeerNews::a_peer_works())) {
      fail(operation, cat("rank ", awaited_.load(), " is not there after ",
                          patience.waited().count(), " ms"));
    }
    sleep(seen);
  }
  awaited_ = -1;
}

int SharedGroup::awaited_through(int member) const {
  const int other = members_[member].shared().waits_for;
  return other >= 0 ? other : names_[member];
}

void SharedGroup::note_wait(int rank) {
  members_[rank_].shared().waits_for = rank;
}

void SharedGroup::sleep(uint32_t seen) {
  Shared& group = members_[0].shared();
  group.sleepers.fetch_add(1);
  futex_wait(group.activity, seen);
  group.sleepers.fetch_sub(1);
}

void SharedGroup::throw_if_gone(int member, const char* operation) {
  const Shared& peer = members_[member].shared();
  const int watched = members_[member].process_descriptor;
  pollfd ended{watched, POLLIN, 0};
  const bool is_dead = watched >= 0 && poll(&ended, 1, 0) > 0;
  if (!is_dead && peer.has_left.load() == 0) return;
  // The peer may have arrived at this operation before it left.
  if (peer.meetings.load() >= meetings_) return;
  fail(operation,
       cat("rank ", names_[member], is_dead ? " has ended" : " has left"));
}

void SharedGroup::check_signatures(const char* operation) {
  checked_ = true;
  const Signature& mine = members_[rank_].shared().signatures[side_];
  for (int rank = 0; rank < size(); ++rank) {
    const Signature& other = members_[rank].shared().signatures[side_];
    if (other.operation == mine.operation && other.elements == mine.elements &&
        other.place == mine.place) {
      continue;
    }
    give_up("ranks disagree");
    HEADROOM_CHECK(
        false, cat(std::string(operation), " of ", mine.elements,
                   " elements, but rank ", names_[rank], " is in operation ",
                   other.operation, " of ", other.elements));
  }
}

void SharedGroup::give_up(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  abort(reason);
}

void SharedGroup::abort(const std::string& reason) {
  Shared& group = members_[0].shared();
  if (group.has_reason.exchange(1) != 0) return;
  const std::string text =
      cat("rank ", names_[rank_], " has given up: ", reason);
  text.copy(group.reason, kReasonBytes - 1);  // zeros follow
  group.has_failed.store(1);
  announce();
}

void SharedGroup::throw_if_failed(const char* operation) const {
  if (failure_.empty()) return;
  throw CommunicationError(cat("rank ", names_[rank_], " of ", num_ranks_, ", ",
                               operation, ": ", failure_));
}

void SharedGroup::fail(const char* operation, const std::string& reason) {
  give_up(reason);
  throw_if_failed(operation);
  __builtin_unreachable();
}

}  // namespace headroom::collectives
