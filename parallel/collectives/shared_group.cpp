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

#include "parallel/base/check.h"
#include "parallel/base/peer_wait.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"

namespace headroom::collectives {
namespace {

// A number that is equal in two processes only if they can share memory (up to
// a chance of 2^-64): same host, same process-number namespace (container),
// same user.
int64_t host_identity() {
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

}  // namespace

// The start of every segment. Peers read it in their own mapping, so it has no
// pointers and only lock-free atomics.
struct SharedGroup::Shared {
  // Fields of the segment's owner.
  alignas(64) std::atomic<uint64_t> meetings;  // meetings the owner reached
  std::atomic<uint32_t> has_left;
  Signature signatures[2];

  // Fields of the group, used only in rank 0's segment.
  alignas(64) std::atomic<uint32_t> activity;  // futex; counts changes
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> has_failed;
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
  int64_t host = 0;
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

std::unique_ptr<SharedGroup> SharedGroup::connect(
    Communicator& ranks, std::chrono::milliseconds timeout,
    std::string& reason) {
  static_assert(sizeof(Shared) <= kBookkeepingBytes);
  static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                std::atomic<uint32_t>::is_always_lock_free);
  std::unique_ptr<SharedGroup> group(new SharedGroup(ranks.rank(), timeout));
  std::optional<SharedSegment> own;
  Invitation mine{host_identity(), 0, {}};
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
  bool can = true;
  for (const Invitation& one : all) {
    if (one.host != mine.host) {
      reason = "the ranks are on several hosts";
    } else if (one.is_ready == 0 && reason.empty()) {
      reason = "a peer has none to share";
    }
    can &= one.host == mine.host && one.is_ready != 0;
  }
  if (!can) return nullptr;  // `can` is equal on all ranks

  try {
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const SegmentAddress& address = all[static_cast<size_t>(rank)].address;
      if (rank == ranks.rank()) {
        group->members_.push_back({std::move(*own), -1});
        continue;
      }
      // Watch the process before opening: if the token then matches, the
      // watched process is the peer.
      const int watched =
          address.process == getpid() ? -1 : watch_process(address.process);
      group->members_.push_back(
          {SharedSegment::open(address, segment_bytes()), watched});
    }
  } catch (const Error& error) {
    reason = error.text();
    can = false;
  }
  if (!all_agree(ranks, can)) {
    if (reason.empty()) reason = "a peer cannot";
    return nullptr;
  }
  for (const Member& member : group->members_) {
    std::byte* const parts = member.segment.data() + kBookkeepingBytes;
    group->parts_[0].push_back(parts);
    group->parts_[1].push_back(parts + kPartBytes);
  }
  return group;
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
    const int member = missing();
    if (member < 0) break;
    if (group.has_failed.load() != 0) fail(operation, "a peer has given up");
    throw_if_gone(member, operation);
    if (is_aborted) fail(operation, "aborted: a peer is lost");
    if (patience.is_over(Clock::now(), PeerNews::a_peer_works())) {
      fail(operation, cat("rank ", member, " is not there after ",
                          patience.waited().count(), " ms"));
    }
    sleep(seen);
  }
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
  fail(operation, cat("rank ", member, is_dead ? " has ended" : " has left"));
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
    HEADROOM_CHECK(false, cat(std::string(operation), " of ", mine.elements,
                              " elements, but rank ", rank, " is in operation ",
                              other.operation, " of ", other.elements));
  }
}

void SharedGroup::give_up(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
  members_[0].shared().has_failed.store(1);
  announce();
}

void SharedGroup::throw_if_failed(const char* operation) const {
  if (failure_.empty()) return;
  throw CommunicationError(
      cat("rank ", rank_, " of ", size(), ", ", operation, ": ", failure_));
}

void SharedGroup::fail(const char* operation, const std::string& reason) {
  give_up(reason);
  throw_if_failed(operation);
  __builtin_unreachable();
}

}  // namespace headroom::collectives
