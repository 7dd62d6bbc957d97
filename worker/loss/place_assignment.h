// Place assignment: which label each place predicts, for heads without anchors.
// A place is a cell of a level. The rule is task-aligned assignment (Feng et
// al., "TOOD: Task-aligned One-stage Object Detection", ICCV 2021,
// arXiv:2108.07755).
//
// Unlike target_assignment.h, the rule needs the predictions:
//
//   candidates  of a label: the places whose centre lies inside the label's box
//   u           overlap of a candidate's predicted box and the label: CIoU, at
//               least 0
//   t           alignment: sqrt(predicted score of the label's class) * u^6
//
//   best_places()    each label takes its `chosen` candidates of largest t
//   owned_places()   a place taken by several labels goes to the label of the
//                    image that it overlaps most
//   label_maxima()   the largest t and u of each label's places
//   place_weight()   t scaled so that a label's best place weighs its largest u
//
// If the rows of an image are split over ranks, each rank calls best_places()
// and label_maxima() for its rows. The results of all ranks are merged by
// merged_places() and merged_maxima(), which give the results of the whole
// image, in any order of merging. Everything else is local.
//
// No list has an entry for each label and place: candidates are a rectangle of
// cells on each level, and a label's list never has more than `chosen`. All
// lists together have about 800 bytes for each label. Ties go to the lower
// place and to the lower label, so the result does not depend on threads or
// layout. A candidate with t = 0 is never taken.
//
// Computed in the predictions' type T, float or double.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/base/place_memory.h"
#include "worker/kernels/place_math.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// The rows of a level that this rank has.
struct PlaceLevel {
  int64_t stride = 1;
  int64_t height = 0;  // rows of the whole image's level
  int64_t width = 0;
  int64_t first_row = 0;
  int64_t rows = 0;
};

// Places are numbered over the whole image by level, row and column; local
// indices count the rows that this rank has, in the same order.
class PlaceGrid {
 public:
  explicit PlaceGrid(std::vector<PlaceLevel> levels);

  const std::vector<PlaceLevel>& levels() const { return levels_; }
  int64_t num_local() const { return local_begins_.back(); }
  // The level of the place with this local index.
  size_t level_of(int64_t local) const;
  int64_t local_begin(size_t level) const { return local_begins_[level]; }
  int64_t begin(size_t level) const { return begins_[level]; }
  // The number of the place in row `row` of the whole level.
  int64_t place(size_t level, int64_t row, int64_t column) const {
    return begins_[level] + row * levels_[level].width + column;
  }
  // The local index of a place; -1 if another rank has it.
  int64_t local_of(int64_t place) const;

 private:
  std::vector<PlaceLevel> levels_;
  std::vector<int64_t> begins_, local_begins_;  // one more than levels
};

struct PlaceRule {
  int64_t chosen = kPlacesPerLabel;  // places that a label takes
  // Places that a label keeps of those that it owns: 1 in a one-to-one head.
  int64_t kept = kPlacesPerLabel;
};

// A label of an image; the box is in pixels of the network's input.
template <typename T>
struct PlaceLabel {
  kernels::CornerBox<T> box;
  int64_t class_index = 0;
};

// `width` and `height`: of the network's input, in pixels.
template <typename T>
PlaceLabel<T> pixel_label(const LabelRow& label, T width, T height) {
  const T x = static_cast<T>(label.cx) * width;
  const T y = static_cast<T>(label.cy) * height;
  const T half_w = static_cast<T>(label.w) * width / 2;
  const T half_h = static_cast<T>(label.h) * height / 2;
  return {{x - half_w, y - half_h, x + half_w, y + half_h}, label.class_index};
}

// Predictions of one image at the local places.
template <typename T>
struct PlacePredictions {
  const kernels::CornerBox<T>* boxes = nullptr;  // pixels
  // The probability of a class.
  std::function<T(int64_t local, int64_t class_index)> score;
};

template <typename T>
struct TakenPlace {
  int64_t place = 0;
  T alignment = 0;  // t
  bool operator==(const TakenPlace&) const = default;
};

// One list for each label, by falling alignment, then by rising place.
template <typename T>
using TakenPlaces = std::vector<std::vector<TakenPlace<T>>>;

template <typename T>
struct OwnedPlace {
  int64_t local = 0;  // local index
  int64_t label = 0;
  T alignment = 0, overlap = 0;  // t and u with that label
};

// The largest t and u of a label's places; 0 if it has none.
template <typename T>
struct LabelMaxima {
  T alignment = 0, overlap = 0;
  bool operator==(const LabelMaxima&) const = default;
};

template <typename T>
TakenPlaces<T> best_places(const PlaceGrid& grid,
                           const std::vector<PlaceLabel<T>>& labels,
                           const PlacePredictions<T>& predictions,
                           const PlaceRule& rule);

// The best places of a whole image, from those of its parts.
template <typename T>
TakenPlaces<T> merged_places(const std::vector<TakenPlaces<T>>& parts,
                             const PlaceRule& rule);

// The owned places of this rank, by rising local index. `taken`: of the whole
// image. REQUIRES: rule.kept >= rule.chosen if the image is split.
template <typename T>
std::vector<OwnedPlace<T>> owned_places(
    const PlaceGrid& grid, const std::vector<PlaceLabel<T>>& labels,
    const PlacePredictions<T>& predictions, const TakenPlaces<T>& taken,
    const PlaceRule& rule);

template <typename T>
std::vector<LabelMaxima<T>> label_maxima(
    const std::vector<OwnedPlace<T>>& owned, size_t num_labels);

template <typename T>
std::vector<LabelMaxima<T>> merged_maxima(
    const std::vector<std::vector<LabelMaxima<T>>>& parts);

// The weight of an owned place; `maxima` are those of its label.
template <typename T>
T place_weight(const OwnedPlace<T>& place, const LabelMaxima<T>& maxima) {
  return kernels::scaled_alignment(place.alignment, maxima.alignment,
                                   maxima.overlap);
}

}  // namespace headroom::loss
