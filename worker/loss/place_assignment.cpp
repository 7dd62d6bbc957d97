#include "worker/loss/place_assignment.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/place_math.h"

namespace headroom::loss {

PlaceGrid::PlaceGrid(std::vector<PlaceLevel> levels)
    : levels_(std::move(levels)), begins_{0}, local_begins_{0} {
  for (const PlaceLevel& level : levels_) {
    HEADROOM_CHECK(
        level.first_row >= 0 && level.first_row + level.rows <= level.height,
        cat("rows ", level.first_row, " to ", level.first_row + level.rows,
            " of ", level.height));
    begins_.push_back(begins_.back() + level.height * level.width);
    local_begins_.push_back(local_begins_.back() + level.rows * level.width);
  }
}

size_t PlaceGrid::level_of(int64_t local) const {
  size_t level = 0;
  while (local >= local_begins_[level + 1]) ++level;
  return level;
}

int64_t PlaceGrid::local_of(int64_t place) const {
  const auto end = std::upper_bound(begins_.begin(), begins_.end(), place);
  const auto index = static_cast<size_t>(end - begins_.begin()) - 1;
  const PlaceLevel& level = levels_[index];
  const int64_t cell = place - begins_[index];
  const int64_t local = cell - level.first_row * level.width;
  const bool is_here = local >= 0 && local < level.rows * level.width;
  return is_here ? local_begins_[index] + local : -1;
}

namespace {

using kernels::CellRange;
using kernels::CornerBox;

// One image's predictions beside its labels.
template <typename T>
class Matching {
 public:
  Matching(const PlaceGrid& grid, const std::vector<PlaceLabel<T>>& labels,
           const PlacePredictions<T>& predictions)
      : grid_(grid), labels_(labels), predictions_(predictions) {
    // The rule of the published networks: the second level's stride.
    const std::vector<PlaceLevel>& levels = grid.levels();
    const T least =
        static_cast<T>(levels[std::min<size_t>(1, levels.size() - 1)].stride);
    for (const PlaceLabel<T>& label : labels) {
      areas_.push_back(kernels::candidate_area(label.box, least));
    }
  }

  T overlap(size_t label, int64_t local) const {
    return kernels::place_overlap(labels_[label].box,
                                  predictions_.boxes[local]);
  }
  T alignment(size_t label, int64_t local, T overlap) const {
    return kernels::place_alignment(
        predictions_.score(local, labels_[label].class_index), overlap);
  }

  // Calls visit(place, local) for each candidate of the label.
  template <typename Visit>
  void for_candidates(size_t label, const Visit& visit) const {
    const CornerBox<T>& area = areas_[label];
    for (size_t i = 0; i < grid_.levels().size(); ++i) {
      const PlaceLevel& level = grid_.levels()[i];
      const CellRange columns = kernels::cells_between(
          area.x1, area.x2, level.stride, 0, level.width);
      const CellRange rows =
          kernels::cells_between(area.y1, area.y2, level.stride,
                                 level.first_row, level.first_row + level.rows);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const int64_t local =
            grid_.local_begin(i) + (row - level.first_row) * level.width;
        for (int64_t x = columns.begin; x < columns.end; ++x) {
          visit(grid_.place(i, row, x), local + x);
        }
      }
    }
  }

  bool is_candidate(size_t label, int64_t local) const {
    const size_t i = grid_.level_of(local);
    const PlaceLevel& level = grid_.levels()[i];
    const int64_t cell = local - grid_.local_begin(i);
    return kernels::is_candidate(areas_[label], cell % level.width,
                                 level.first_row + cell / level.width,
                                 level.stride);
  }

  // The label that overlaps the place most, of all labels.
  OwnedPlace<T> owner_of(int64_t local) const {
    OwnedPlace<T> owner{local, 0, 0, -1};
    for (size_t label = 0; label < labels_.size(); ++label) {
      const T here = is_candidate(label, local) ? overlap(label, local) : T(0);
      if (here > owner.overlap) {
        owner.label = static_cast<int64_t>(label);
        owner.overlap = here;
      }
    }
    const auto label = static_cast<size_t>(owner.label);
    owner.alignment = alignment(label, local, owner.overlap);
    return owner;
  }

 private:
  const PlaceGrid& grid_;
  const std::vector<PlaceLabel<T>>& labels_;
  const PlacePredictions<T>& predictions_;
  std::vector<CornerBox<T>> areas_;
};

template <typename T>
bool is_better(const TakenPlace<T>& a, const TakenPlace<T>& b) {
  return a.alignment != b.alignment ? a.alignment > b.alignment
                                    : a.place < b.place;
}

// Adds a place to a list of at most `count`, or leaves it out if it is worse
// than all of a full list.
template <typename T>
void take(const TakenPlace<T>& place, int64_t count,
          std::vector<TakenPlace<T>>& places) {
  const auto at = std::ranges::upper_bound(places, place, is_better<T>);
  if (at - places.begin() >= count) return;
  places.insert(at, place);
  if (std::ssize(places) > count) places.pop_back();
}

// Leaves each label its `count` places of largest alignment.
template <typename T>
void keep_best_owned(std::vector<OwnedPlace<T>>& owned, int64_t count) {
  std::ranges::stable_sort(owned, [](const auto& a, const auto& b) {
    return a.label != b.label ? a.label < b.label : a.alignment > b.alignment;
  });
  int64_t place_of_label = 0, label = -1;
  std::erase_if(owned, [&](const OwnedPlace<T>& place) {
    if (place.label != label) place_of_label = 0;
    label = place.label;
    return ++place_of_label > count;
  });
  std::ranges::sort(owned, {}, &OwnedPlace<T>::local);
}

}  // namespace

template <typename T>
TakenPlaces<T> best_places(const PlaceGrid& grid,
                           const std::vector<PlaceLabel<T>>& labels,
                           const PlacePredictions<T>& predictions,
                           const PlaceRule& rule) {
  const Matching<T> matching(grid, labels, predictions);
  TakenPlaces<T> best(labels.size());
  for (size_t label = 0; label < labels.size(); ++label) {
    matching.for_candidates(label, [&](int64_t place, int64_t local) {
      const T overlap = matching.overlap(label, local);
      const T alignment = matching.alignment(label, local, overlap);
      if (alignment > 0) {
        take<T>({place, alignment}, rule.chosen, best[label]);
      }
    });
  }
  return best;
}

template <typename T>
TakenPlaces<T> merged_places(const std::vector<TakenPlaces<T>>& parts,
                             const PlaceRule& rule) {
  TakenPlaces<T> merged(parts.front().size());
  for (size_t label = 0; label < merged.size(); ++label) {
    for (const TakenPlaces<T>& part : parts) {
      for (const TakenPlace<T>& place : part[label]) {
        take(place, rule.chosen, merged[label]);
      }
    }
  }
  return merged;
}

template <typename T>
std::vector<OwnedPlace<T>> owned_places(
    const PlaceGrid& grid, const std::vector<PlaceLabel<T>>& labels,
    const PlacePredictions<T>& predictions, const TakenPlaces<T>& taken,
    const PlaceRule& rule) {
  const Matching<T> matching(grid, labels, predictions);
  std::vector<OwnedPlace<T>> takers;
  for (size_t label = 0; label < labels.size(); ++label) {
    for (const TakenPlace<T>& place : taken[label]) {
      const int64_t local = grid.local_of(place.place);
      if (local < 0) continue;
      takers.push_back(
          {local, static_cast<int64_t>(label), place.alignment, 0});
    }
  }
  std::ranges::sort(takers, {}, &OwnedPlace<T>::local);
  std::vector<OwnedPlace<T>> owned;
  for (size_t begin = 0, end = 0; begin < takers.size(); begin = end) {
    OwnedPlace<T> owner = takers[begin];
    while (end < takers.size() && takers[end].local == owner.local) ++end;
    if (end - begin == 1) {
      owner.overlap =
          matching.overlap(static_cast<size_t>(owner.label), owner.local);
    } else {
      owner = matching.owner_of(owner.local);
    }
    owned.push_back(owner);
  }
  if (rule.kept < rule.chosen) keep_best_owned(owned, rule.kept);
  return owned;
}

template <typename T>
std::vector<LabelMaxima<T>> label_maxima(
    const std::vector<OwnedPlace<T>>& owned, size_t num_labels) {
  std::vector<LabelMaxima<T>> maxima(num_labels);
  for (const OwnedPlace<T>& place : owned) {
    LabelMaxima<T>& most = maxima[static_cast<size_t>(place.label)];
    most.alignment = std::max(most.alignment, place.alignment);
    most.overlap = std::max(most.overlap, place.overlap);
  }
  return maxima;
}

template <typename T>
std::vector<LabelMaxima<T>> merged_maxima(
    const std::vector<std::vector<LabelMaxima<T>>>& parts) {
  std::vector<LabelMaxima<T>> merged(parts.front().size());
  for (const std::vector<LabelMaxima<T>>& part : parts) {
    for (size_t label = 0; label < merged.size(); ++label) {
      merged[label].alignment =
          std::max(merged[label].alignment, part[label].alignment);
      merged[label].overlap =
          std::max(merged[label].overlap, part[label].overlap);
    }
  }
  return merged;
}

#define HEADROOM_PLACES_OF(T)                                               \
  template TakenPlaces<T> best_places(                                      \
      const PlaceGrid&, const std::vector<PlaceLabel<T>>&,                  \
      const PlacePredictions<T>&, const PlaceRule&);                        \
  template TakenPlaces<T> merged_places(const std::vector<TakenPlaces<T>>&, \
                                        const PlaceRule&);                  \
  template std::vector<OwnedPlace<T>> owned_places(                         \
      const PlaceGrid&, const std::vector<PlaceLabel<T>>&,                  \
      const PlacePredictions<T>&, const TakenPlaces<T>&, const PlaceRule&); \
  template std::vector<LabelMaxima<T>> label_maxima(                        \
      const std::vector<OwnedPlace<T>>&, size_t);                           \
  template std::vector<LabelMaxima<T>> merged_maxima(                       \
      const std::vector<std::vector<LabelMaxima<T>>>&);
HEADROOM_PLACES_OF(float)
HEADROOM_PLACES_OF(double)
#undef HEADROOM_PLACES_OF

}  // namespace headroom::loss
