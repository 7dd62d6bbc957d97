// CollectiveList: the collectives of one pass over the layers, as data.
//
//   forward   gather 0, gather 1, …            ZeRO 3 only
//   backward  gather n, scatter n, gather n-1, scatter n-1, …
//                                              ZeRO 3; ZeRO 2 scatters only
//   backward, with each layer gathered while the previous one runs
//             gather n, gather n-1, scatter n, gather n-2, scatter n-1, …
//
// An entry's position is where its collective ends; a gather in the background
// begins earlier. The list depends only on the layers, so it is the same on all
// ranks. The cursor refuses any other order, because ranks would then exchange
// different layers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::zero {

struct LayerCollective {
  enum class Kind { kGather, kScatter };
  Kind kind = Kind::kGather;
  int64_t layer = 0;
  bool operator==(const LayerCollective&) const = default;
};

// "gather 3".
std::string to_string(const LayerCollective& collective);

// `layers`, in ascending order: for forward all layers with parameters; for
// backward the layers that learn.
std::vector<LayerCollective> forward_list(const std::vector<int64_t>& layers);
enum class Gathers { kNone, kInTurn, kAhead };
std::vector<LayerCollective> backward_list(const std::vector<int64_t>& layers,
                                           Gathers gathers);

class CollectiveCursor {
 public:
  // Starts a pass. REQUIRES: the previous pass is done.
  void begin(std::vector<LayerCollective> list);
  // Advances past the next collective. REQUIRES: it equals `collective`.
  void pass(const LayerCollective& collective);
  bool done() const { return next_ == list_.size(); }
  // REQUIRES: !done().
  const LayerCollective& next() const { return list_.at(next_); }
  bool next_is(const LayerCollective& collective) const {
    return !done() && next() == collective;
  }

 private:
  std::vector<LayerCollective> list_;
  size_t next_ = 0;
};

}  // namespace headroom::zero
