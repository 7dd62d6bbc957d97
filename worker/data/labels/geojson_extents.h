// ExtentTree: which of many boxes on a map may lie in a picture, found without
// looking at all of them.
//
// The boxes are halved by their middles, along the longer side of what they
// cover, and again, down to a few; each half knows the box around it.
//
// Threads: immutable once built; any thread may read.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "worker/data/labels/box_rules.h"

namespace headroom::labels {

// A picture's bounds and all the way round the Earth, as MapPoints has them.
struct MapBounds {
  std::array<double, 4> sides{};  // west, south, east, north
  double turn = 0;
};

// May the box lie in the picture, on whichever turn round the Earth?
bool may_meet(BoxExtent extent, const MapBounds& bounds);

class ExtentTree {
 public:
  struct Entry {
    BoxExtent extent;
    size_t number = 0;
  };
  explicit ExtentTree(std::vector<Entry> entries);

  // The numbers of the entries that may_meet() a picture, in no order; of one
  // without bounds, all.
  std::vector<size_t> meeting(const std::optional<MapBounds>& bounds) const;

 private:
  struct Node {
    BoxExtent extent;
    size_t begin = 0, end = 0;  // its entries
    // The node of its second half; the first half's follows this one. 0 where
    // it is not halved.
    size_t second = 0;
  };
  void build(size_t begin, size_t end);

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;  // the root first
};

}  // namespace headroom::labels
