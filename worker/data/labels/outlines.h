// Outlines: the outlines of an image's boxes, where labels are polygons.
//
// Ownership: borrows the data set's memory. Threads: a value; any may read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace headroom::labels {

// Fractions of the image's width and height.
using IndexedPoint = std::array<float, 2>;

class Outlines {
 public:
  Outlines() = default;  // no box has one

  // `ends`: of each box, where its points end, counted from where `begin`
  // counts; `points` start there.
  Outlines(std::span<const uint64_t> ends, uint64_t begin,
           const IndexedPoint* points)
      : ends_(ends), begin_(begin), points_(points) {}

  // Of the box with that place among the image's; empty where it has none.
  std::span<const IndexedPoint> of(size_t box) const {
    if (box >= ends_.size()) return {};
    const uint64_t from = box == 0 ? begin_ : ends_[box - 1];
    return {points_ + (from - begin_), ends_[box] - from};
  }

 private:
  std::span<const uint64_t> ends_;
  uint64_t begin_ = 0;
  const IndexedPoint* points_ = nullptr;
};

}  // namespace headroom::labels
