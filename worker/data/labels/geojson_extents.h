// ExtentTree: finds which of many boxes on a map may be inside a picture
// without testing all of them.
//
// The boxes are split into halves by their centres, along the longer side of
// the area that they cover. The halves are split again until few boxes are
// left. Each node stores the extent of its boxes.
//
// Threads: immutable once built; any thread may read.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "worker/data/labels/box_rules.h"

namespace headroom::labels {

// The bounds of a picture, and the length of a whole turn round the Earth (see
// MapPoints); turn is 0 if coordinates do not wrap.
struct MapBounds {
  std::array<double, 4> sides{};  // west, south, east, north
  double turn = 0;
};

// Whether the box may be inside the picture after moving it by any number of
// whole turns round the Earth.
bool may_meet(BoxExtent extent, const MapBounds& bounds);

class ExtentTree {
 public:
  struct Entry {
    BoxExtent extent;
    size_t number = 0;
  };
  explicit ExtentTree(std::vector<Entry> entries);

  // The numbers of the entries that may_meet() a picture, in no particular
  // order; the numbers of all entries if `bounds` is nullopt.
  std::vector<size_t> meeting(const std::optional<MapBounds>& bounds) const;

 private:
  struct Node {
    BoxExtent extent;
    size_t begin = 0, end = 0;  // range of the node's entries
    // Index of the node of the second half, 0 for a leaf. The node of the first
    // half directly follows this one.
    size_t second = 0;
  };
  void build(size_t begin, size_t end);

  std::vector<Entry> entries_;
  std::vector<Node> nodes_;  // the root is first
};

}  // namespace headroom::labels
