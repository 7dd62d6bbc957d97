// SharedGroup: the ranks of one machine that exchange data through shared
// memory, in turns. They are some or all ranks of a communicator; inside the
// group they are numbered from 0 in the same order, and messages name them by
// their rank in the communicator. In each turn every rank writes its part, then
// reads the parts of the others:
//
//   parts = group.begin(signature);   write this rank's part, parts[rank]
//   group.meet(operation);            now all ranks' parts can be read
//
// Each rank owns a segment with some bookkeeping and two buffers, and maps the
// segments of all other ranks. Turns alternate between the buffers, and each
// turn has at least one meeting: so when a turn begins, no rank still reads the
// data of two turns before.
//
// Waiting spins for some microseconds, then sleeps on a futex. One thread per
// rank. A rank leaves by destroying the group: peers that wait for it fail.
// Errors: CommunicationError if a peer has left, died (by any signal: its
// process is watched through a pidfd), given up, or not reached the meeting
// within the time limit; all ranks' groups are then unusable. CheckFailure if
// ranks begin turns with different signatures.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/shared_segment.h"

namespace headroom::collectives {

// A number that is equal in two processes only if they can share memory (up to
// a chance of 2^-64): same host, same process-number namespace (container),
// same user.
int64_t memory_identity();

class SharedGroup {
 public:
  // The number of bytes that each rank can write in one turn.
  static constexpr int64_t kPartBytes = 512 << 10;

  // The operation of a turn, which must be equal on all ranks.
  struct Signature {
    int64_t operation = 0;
    int64_t elements = 0;
    int64_t place = 0;  // SharedBuffers::Place::number, for sums in place
  };

  // The ranks of a communicator, by machine.
  struct Machines {
    // This machine's ranks; null if the machine has one rank only.
    std::unique_ptr<SharedGroup> here;
    // The lowest rank of each machine, in ascending order.
    std::vector<int> leaders;
  };
  // Makes the groups of those of `ranks` that pass the same `machine`. Returns
  // no leaders if the ranks of a machine cannot share memory, and sets `reason`
  // on that machine. Collective; all ranks get the same leaders.
  static Machines connect(Communicator& ranks, int64_t machine,
                          std::chrono::milliseconds timeout,
                          std::string& reason);
  ~SharedGroup();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // Begins a turn. Returns its buffers, by rank, of kPartBytes each.
  const std::vector<std::byte*>& begin(const Signature& signature);
  // Waits until all ranks have called it as often in this turn.
  void meet(const char* operation);

  // Marks the group as failed: this rank's later calls fail, and peers that
  // wait now or later fail too.
  void give_up(const std::string& reason);
  void throw_if_failed(const char* operation) const;
  // Why the group failed, or "".
  const std::string& failure() const { return failure_; }

  // These three functions may be called from any thread.
  // As give_up(), also for a meeting of this rank in progress.
  void abort(const std::string& reason);
  // The rank for which a meeting waits, or -1. If that rank in turn waits for a
  // rank of another machine (note_wait), it is that one.
  int awaited() const { return awaited_; }
  // Notes that this rank waits for `rank`, outside of the group; -1 for none.
  void note_wait(int rank);

 private:
  struct Shared;  // the bookkeeping in a segment
  struct Member {
    SharedSegment segment;
    // a pidfd, readable when the process has ended
    int process_descriptor = -1;
    Shared& shared() const;
  };

  SharedGroup(int rank, std::vector<int> names, int num_ranks,
              std::chrono::milliseconds timeout)
      : rank_(rank),
        names_(std::move(names)),
        num_ranks_(num_ranks),
        timeout_(timeout) {}

  // Maps the members' memory; throws Error.
  void open(SharedSegment own, const std::vector<SegmentAddress>& addresses);
  void announce();
  // A rank that has not arrived yet, or -1.
  int missing() const;
  // Waits until no member is missing.
  void await_members(const char* operation);
  int awaited_through(int member) const;
  void sleep(uint32_t seen);
  void throw_if_gone(int member, const char* operation);
  void check_signatures(const char* operation);
  [[noreturn]] void fail(const char* operation, const std::string& reason);

  const int rank_;
  const std::vector<int> names_;  // each member's rank in the communicator
  const int num_ranks_;           // ranks of the communicator
  const std::chrono::milliseconds timeout_;
  std::vector<Member> members_;       // one for each rank
  std::vector<std::byte*> parts_[2];  // [side][rank]
  int side_ = 0;
  bool checked_ = true;  // whether this turn's signatures were checked
  uint64_t meetings_ = 0;
  std::atomic<int> awaited_ = -1;
  std::string failure_;
};

}  // namespace headroom::collectives
