// CollectiveList: the collectives of one pass over the rows, as data.
//
//   forward   gather 0, gather 1, …            ZeRO 3 only
//   backward  gather n, scatter n, gather n-1, scatter n-1, …
//                                              ZeRO 3; ZeRO 2 scatters only
//   the same, each row fetched while the one before it is at work
//             gather n, gather n-1, scatter n, gather n-2, scatter n-1, …
//
// An entry's place is that of its end: a fetched row's gather begins earlier.
// The list follows from the rows alone, whatever a rank computes, so a rank
// that fails can carry out the rest of it with zeros. The cursor refuses every
// other order: peers would exchange different rows.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::zero {

struct RowCollective {
  enum class Kind { kGather, kScatter };
  Kind kind = Kind::kGather;
  int64_t row = 0;
  bool operator==(const RowCollective&) const = default;
};

// "gather 3".
std::string to_string(const RowCollective& collective);

// `rows` in ascending order: those with parameters, and those that learn.
std::vector<RowCollective> forward_list(const std::vector<int64_t>& rows);
enum class Gathers { kNone, kInTurn, kAhead };
std::vector<RowCollective> backward_list(const std::vector<int64_t>& rows,
                                         Gathers gathers);

class CollectiveCursor {
 public:
  // Starts a pass. REQUIRES: the one before is done.
  void begin(std::vector<RowCollective> list);
  // Ticks off the next one. REQUIRES: it is `collective`.
  void pass(const RowCollective& collective);
  bool done() const { return next_ == list_.size(); }
  const std::vector<RowCollective>& list() const { return list_; }
  size_t num_done() const { return next_; }
  // REQUIRES: !done().
  const RowCollective& next() const { return list_.at(next_); }
  bool next_is(const RowCollective& collective) const {
    return !done() && next() == collective;
  }

 private:
  std::vector<RowCollective> list_;
  size_t next_ = 0;
};

}  // namespace headroom::zero
