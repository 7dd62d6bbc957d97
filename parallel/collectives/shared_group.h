// SharedGroup: ranks of one host that pass data through memory they share, step
// by step.
//
//   Turn turn = group.begin(signature);   my part of turn.parts[rank]
//   turn.meet();                          now everybody's parts can be read
//
// Each rank owns a segment with a few words of bookkeeping and two buffers, and
// maps those of all others. Turns alternate between the buffers, and each has
// at least one meeting: so who begins a turn knows that nobody reads any more
// what lay there two turns ago.
//
// Waiting spins for some microseconds, then sleeps on a futex. One thread per
// rank. Destroying the group is how a rank leaves: peers that wait for it fail.
// Errors: CommunicationError when a peer has left, died (any
// signal: its process is watched through a pidfd), given up, or is not there
// within the time limit; the group is unusable from then on, for all ranks.
// CheckFailure when ranks begin turns of different signatures.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.h"
#include "parallel/collectives/shared_segment.h"

namespace headroom::collectives {

class SharedGroup {
 public:
  // The size of each rank's part of a turn.
  static constexpr int64_t kPartBytes = 512 << 10;

  // What a turn does, which must be the same on all ranks.
  struct Signature {
    int64_t operation = 0;
    int64_t elements = 0;
    int64_t place = 0;  // SharedBuffers::Place::number, for sums in place
  };

  // The group of the ranks of `ranks`, or none with the reason where they
  // cannot share memory. Collective; the same answer on all ranks.
  static std::unique_ptr<SharedGroup> connect(Communicator& ranks,
                                              std::chrono::milliseconds timeout,
                                              std::string& reason);
  ~SharedGroup();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }

  // The next turn's buffers, kPartBytes each, by rank.
  const std::vector<std::byte*>& begin(const Signature& signature);
  // Returns when all ranks have come to this point of the turn.
  void meet(const char* operation);

  // Makes peers that wait, or will wait, fail too.
  void give_up(const std::string& reason);
  void throw_if_failed(const char* operation) const;

 private:
  struct Shared;  // the words at the start of a segment
  struct Member {
    SharedSegment segment;
    int process_descriptor = -1;  // readable when the process is gone
    Shared& shared() const;
  };

  SharedGroup(int rank, std::chrono::milliseconds timeout)
      : rank_(rank), timeout_(timeout) {}

  void announce();
  // A rank that has not come yet, or -1.
  int missing() const;
  void sleep(uint32_t seen);
  void throw_if_gone(int member, const char* operation);
  void check_signatures(const char* operation);
  [[noreturn]] void fail(const char* operation, const std::string& reason);

  const int rank_;
  const std::chrono::milliseconds timeout_;
  std::vector<Member> members_;       // one for each rank
  std::vector<std::byte*> parts_[2];  // each rank's, on two sides
  int side_ = 0;
  bool checked_ = true;  // the turn's signatures
  uint64_t meetings_ = 0;
  std::string failure_;
};

}  // namespace headroom::collectives
