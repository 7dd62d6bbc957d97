// The assignment and loss of heads without anchors as CUDA threads compute
// them, in plain C++; a test runs it on the CPU.
//
//   distances   one thread per side of a place computes the side's distance
//   best        one block per label: each thread keeps the best places of its
//               candidates in a sorted list, then the lists are merged
//   takers      one thread per taken place counts the labels that take it, with
//               integer atomics, whose result does not depend on their order
//   owners      one thread per place chooses the owner; the labels' maxima are
//               atomic too
//   loss        half of the blocks sum over the class logits, the others over
//               the sides of owned places. Each block writes its sums to
//               `partial`, and one last block adds them up.
//   gradients   one warp per place writes the class gradients, and one thread
//               per side the gradients of its logits; each element once
//
// T is the type of the maps and G the gradients', which may have 16 bits. A
// gradient is computed in T and rounded once.
#pragma once

#include <cstdint>
#include <cstring>

#include "parallel/base/head_fields.h"
#include "parallel/cuda/kernels/loss_body.h"
#include "worker/kernels/place_math.h"

namespace headroom::cuda {

constexpr int kPlaceThreads = 256;
// Threads that compute in double keep many registers.
constexpr int kSideThreads = 128;
constexpr int kBestThreads = 128;
constexpr int kTaken = 10;  // places of a label
constexpr int kTakenDoubles = 2;
constexpr int kMaximaDoubles = 2;
constexpr int kPlaceSums = 4;   // box, cls, dfl, weights
constexpr int kPlaceParts = 2;  // class logits, sides of owned places

// Of CUDA's type for atomics.
using TakerCount = unsigned long long;
constexpr int kTakerShift = 32;

struct PlaceLossLevel {
  const void* box = nullptr;  // [places, sides * bins]
  const void* cls = nullptr;  // [places, classes]
  void* box_gradient = nullptr;
  void* cls_gradient = nullptr;
  int64_t cls_channels = 0;  // of the gradient
  int64_t stride = 1;
  int64_t width = 0, rows = 0, first_row = 0;
  int64_t num_places = 0;   // of all images
  int64_t begin = 0;        // index of the first of them among all levels'
  int64_t first_place = 0;  // number of the level's first place in an image
};

struct PlaceLossArguments {
  bool is_double = false;  // the maps
  ElementType gradient_type = ElementType::kFloat32;
  int num_levels = 0;
  PlaceLossLevel levels[kLossLevels];
  int64_t num_classes = 0;
  int64_t capacity = 0;
  const int32_t* num_labels = nullptr;
  const int32_t* image_begins = nullptr;  // [images + 1]: labels
  const int32_t* images = nullptr;
  const int32_t* classes = nullptr;
  const void* boxes = nullptr;
  const double* scales = nullptr;  // images, factor
  double box_gain = 0, cls_gain = 0, dfl_gain = 0;
  int chosen = kTaken;
  void* distances = nullptr;
  TakerCount* owners = nullptr;
  void* alignments = nullptr;
  double* taken = nullptr;
  const double* all_taken = nullptr;
  int64_t taken_parts = 0;
  double* maxima = nullptr;
  const double* all_maxima = nullptr;
  int64_t maxima_parts = 0;
  int64_t blocks = 0;         // number of blocks for each level and part
  double* partial = nullptr;  // [levels, parts, blocks, sums]
  double* items = nullptr;
  double* total = nullptr;
  const double* by_total = nullptr;
};

// A place of a level: its image, and its cell in the whole image.
struct PlaceCell {
  int64_t image, row, column;
};
HEADROOM_HD PlaceCell place_cell(const PlaceLossLevel& level, int64_t place) {
  const int64_t line = place / level.width;
  return {line / level.rows, level.first_row + line % level.rows,
          place % level.width};
}

template <typename T>
HEADROOM_HD kernels::CornerBox<T> label_box(const PlaceLossArguments& a,
                                            int64_t label) {
  const T* const box = static_cast<const T*>(a.boxes) + label * 4;
  return {box[0], box[1], box[2], box[3]};
}

// The box in which the candidates of a label lie. The lower bound of its sides
// is the second level's stride, as in the published networks.
template <typename T>
HEADROOM_HD kernels::CornerBox<T> label_area(const PlaceLossArguments& a,
                                             int64_t label) {
  const int64_t least = a.levels[a.num_levels > 1 ? 1 : 0].stride;
  return kernels::candidate_area(label_box<T>(a, label), static_cast<T>(least));
}

template <typename T>
HEADROOM_HD const T* distances_at(const PlaceLossArguments& a,
                                  const PlaceLossLevel& level, int64_t place) {
  return static_cast<const T*>(a.distances) + (level.begin + place) * kBoxSides;
}

template <typename T>
HEADROOM_HD T overlap_at(const PlaceLossArguments& a,
                         const PlaceLossLevel& level, int64_t label,
                         int64_t place, const PlaceCell& cell) {
  return kernels::place_overlap(
      label_box<T>(a, label),
      kernels::predicted_box(cell.column, cell.row, level.stride,
                             distances_at<T>(a, level, place)));
}

template <typename T>
HEADROOM_HD T alignment_at(const PlaceLossArguments& a,
                           const PlaceLossLevel& level, int64_t label,
                           int64_t place, T overlap) {
  const T logit = static_cast<const T*>(
      level.cls)[place * a.num_classes + a.classes[label]];
  return kernels::place_alignment(kernels::score_of(logit), overlap);
}

// --- distances ---

// The distance of a side, out of 4 of each place.
template <typename T>
HEADROOM_HD kernels::SideDistance side_distance(const PlaceLossLevel& level,
                                                int64_t side) {
  constexpr int kWidth = kVectorBytes / sizeof(T);
  const T* const from = static_cast<const T*>(level.box) + side * kDistanceBins;
  T logits[kDistanceBins];
  for (int first = 0; first < kDistanceBins; first += kWidth) {
    const auto pack = load_pack<kWidth>(from + first);
    for (int v = 0; v < kWidth; ++v) logits[first + v] = pack.at[v];
  }
  return kernels::distance_of(logits);
}

template <typename T>
HEADROOM_HD void write_distance(const PlaceLossArguments& a,
                                const PlaceLossLevel& level, int64_t side) {
  static_cast<T*>(a.distances)[level.begin * kBoxSides + side] =
      static_cast<T>(side_distance<T>(level, side).mean);
  if (side % kBoxSides == 0) a.owners[level.begin + side / kBoxSides] = 0;
}

// --- best places of a label ---

// Places by falling alignment, then by rising number. Empty entries have an
// alignment of 0. Without variable indexes the list stays in registers.
template <typename T>
struct BestPlaces {
  T alignments[kTaken] = {};
  int32_t places[kTaken] = {};

  HEADROOM_HD void add(T alignment, int32_t place) {
    if (!is_better(alignment, place, kTaken - 1)) return;
    for (int i = 0; i < kTaken; ++i) {
      if (!is_better(alignment, place, i)) continue;
      const T lower = alignments[i];
      const int32_t lower_place = places[i];
      alignments[i] = alignment;
      places[i] = place;
      alignment = lower;
      place = lower_place;
    }
  }

 private:
  HEADROOM_HD bool is_better(T alignment, int32_t place, int i) const {
    return alignment > alignments[i] ||
           (alignment == alignments[i] && alignment > 0 && place < places[i]);
  }
};

// Adds one thread's share of a label's candidates to `best`.
template <typename T>
HEADROOM_HD void add_candidates(const PlaceLossArguments& a, int64_t label,
                                int thread, BestPlaces<T>& best) {
  const kernels::CornerBox<T> area = label_area<T>(a, label);
  const int64_t image = a.images[label];
  for (int number = 0; number < a.num_levels; ++number) {
    const PlaceLossLevel& level = a.levels[number];
    const kernels::CellRange columns = kernels::cells_between(
        area.x1, area.x2, level.stride, int64_t{0}, level.width);
    const kernels::CellRange rows =
        kernels::cells_between(area.y1, area.y2, level.stride, level.first_row,
                               level.first_row + level.rows);
    const auto width = static_cast<uint32_t>(columns.size());
    const auto count = static_cast<uint32_t>(rows.size()) * width;
    for (auto i = static_cast<uint32_t>(thread); i < count; i += kBestThreads) {
      const PlaceCell cell = {image, rows.begin + i / width,
                              columns.begin + i % width};
      const int64_t place =
          (image * level.rows + cell.row - level.first_row) * level.width +
          cell.column;
      const T overlap = overlap_at<T>(a, level, label, place, cell);
      const T alignment = alignment_at(a, level, label, place, overlap);
      if (alignment > 0) {
        best.add(alignment,
                 static_cast<int32_t>(level.first_place +
                                      cell.row * level.width + cell.column));
      }
    }
  }
}

template <typename T>
HEADROOM_HD void write_best(const PlaceLossArguments& a, int64_t label,
                            const BestPlaces<T>& best) {
  double* const to = a.taken + label * kTaken * kTakenDoubles;
  for (int i = 0; i < kTaken; ++i) {
    const bool is_taken = i < a.chosen;
    to[i * kTakenDoubles] =
        is_taken ? static_cast<double>(best.alignments[i]) : 0;
    to[i * kTakenDoubles + 1] = is_taken ? best.places[i] : 0;
  }
  for (int i = 0; i < kMaximaDoubles; ++i) {
    a.maxima[label * kMaximaDoubles + i] = 0;
  }
}

// --- owners ---

// The level and index of a place with this number in an image; index -1 if
// another rank has it.
struct LocalPlace {
  int level;
  int64_t place;
};
HEADROOM_HD LocalPlace local_place(const PlaceLossArguments& a, int64_t image,
                                   int64_t number) {
  int at = 0;
  while (at + 1 < a.num_levels && number >= a.levels[at + 1].first_place) ++at;
  const PlaceLossLevel& level = a.levels[at];
  const int64_t cell = number - level.first_place;
  const int64_t row = cell / level.width - level.first_row;
  if (row < 0 || row >= level.rows) return {at, -1};
  return {at, (image * level.rows + row) * level.width + cell % level.width};
}

// Whether entry `entry` of part `part` is one of the label's best places in the
// whole image. The parts' places differ.
HEADROOM_HD bool is_best(const PlaceLossArguments& a, int64_t label,
                         int64_t part, int entry) {
  const auto at = [&a, label](int64_t of_part, int of_entry) {
    return a.all_taken +
           ((of_part * a.capacity + label) * kTaken + of_entry) * kTakenDoubles;
  };
  const double* const own = at(part, entry);
  if (!(own[0] > 0)) return false;
  if (a.taken_parts == 1) return true;
  int better = 0;
  for (int64_t of = 0; of < a.taken_parts; ++of) {
    for (int i = 0; i < kTaken; ++i) {
      const double* const other = at(of, i);
      better += other[0] > own[0] || (other[0] == own[0] && other[1] < own[1]);
    }
  }
  return better < a.chosen;
}

// Chooses the owner of a place. Returns its overlap; a negative number if there
// is no owner.
template <typename T>
HEADROOM_HD T choose_owner(const PlaceLossArguments& a,
                           const PlaceLossLevel& level, int64_t place) {
  TakerCount& owner = a.owners[level.begin + place];
  const TakerCount takers = owner;
  if (takers == 0) return T(-1);
  const PlaceCell cell = place_cell(level, place);
  int64_t label = 0;
  T overlap = -1;
  if (takers >> kTakerShift == 1) {
    label = static_cast<int64_t>(takers & 0xffffffffu);
    overlap = overlap_at<T>(a, level, label, place, cell);
  } else {
    const int64_t end = a.image_begins[cell.image + 1];
    for (int64_t i = a.image_begins[cell.image]; i < end; ++i) {
      if (!kernels::is_candidate(label_area<T>(a, i), cell.column, cell.row,
                                 level.stride)) {
        continue;
      }
      const T here = overlap_at<T>(a, level, i, place, cell);
      if (here > overlap) {
        label = i;
        overlap = here;
      }
    }
  }
  owner = static_cast<TakerCount>(label) + 1;
  static_cast<T*>(a.alignments)[level.begin + place] =
      alignment_at(a, level, label, place, overlap);
  return overlap;
}

// The bits of a number that is not negative are ordered as the number is.
HEADROOM_HD TakerCount ordered_bits(double value) {
  TakerCount bits = 0;
  static_assert(sizeof bits == sizeof value);
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

// --- loss ---

// The label that owns a place, and the place's weight.
struct PlaceTarget {
  int64_t label = -1;
  double weight = 0;
};
template <typename T>
HEADROOM_HD PlaceTarget target_of(const PlaceLossArguments& a,
                                  const PlaceLossLevel& level, int64_t place) {
  PlaceTarget target;
  target.label = static_cast<int64_t>(a.owners[level.begin + place]) - 1;
  if (target.label < 0) return target;
  double alignment = 0, overlap = 0;
  for (int64_t part = 0; part < a.maxima_parts; ++part) {
    const double* const of =
        a.all_maxima + (part * a.capacity + target.label) * kMaximaDoubles;
    alignment = kernels::maximum(alignment, of[0]);
    overlap = kernels::maximum(overlap, of[1]);
  }
  const T own = static_cast<const T*>(a.alignments)[level.begin + place];
  target.weight = static_cast<double>(kernels::scaled_alignment(
      own, static_cast<T>(alignment), static_cast<T>(overlap)));
  return target;
}

// The terms of one side of an owned place, without weight.
struct SideTerms {
  double ciou = 0, dfl = 0;
  // Derivatives by the side's logits of box and dfl terms with their gains.
  double gradient[kDistanceBins];
};
template <typename T>
HEADROOM_HD SideTerms side_terms(const PlaceLossArguments& a,
                                 const PlaceLossLevel& level, int64_t place,
                                 int64_t side, int64_t label) {
  using Number = kernels::Dual<1>;
  const PlaceCell cell = place_cell(level, place);
  const double x = static_cast<double>(cell.column) + 0.5;
  const double y = static_cast<double>(cell.row) + 0.5;
  const auto stride = static_cast<double>(level.stride);
  const kernels::CornerBox<T> pixels = label_box<T>(a, label);
  const kernels::CornerBox<double> wanted = {
      static_cast<double>(pixels.x1) / stride,
      static_cast<double>(pixels.y1) / stride,
      static_cast<double>(pixels.x2) / stride,
      static_cast<double>(pixels.y2) / stride};
  Number distances[kBoxSides];
  for (int64_t i = 0; i < kBoxSides; ++i) {
    distances[i].value =
        static_cast<double>(distances_at<T>(a, level, place)[i]);
    distances[i].d[0] = i == side ? 1 : 0;
  }
  const Number ciou = kernels::place_ciou(x, y, distances, wanted);
  const kernels::SideDistance own =
      side_distance<T>(level, place * kBoxSides + side);
  SideTerms terms;
  terms.ciou = ciou.value;
  for (int64_t bin = 0; bin < kDistanceBins; ++bin) {
    terms.gradient[bin] = -a.box_gain * ciou.d[0] * own.by_logit(bin);
  }
  terms.dfl =
      kernels::side_loss(own, kernels::wanted_distance(x, y, side, wanted),
                         a.dfl_gain / kBoxSides, terms.gradient) /
      kBoxSides;
  return terms;
}

struct PlaceSums {
  double of[kPlaceSums] = {};
};

// Adds the sums of one side, out of 4 of each place.
template <typename T>
HEADROOM_HD void add_side(const PlaceLossArguments& a,
                          const PlaceLossLevel& level, int64_t number,
                          PlaceSums& sums) {
  const int64_t place = number / kBoxSides, side = number % kBoxSides;
  const PlaceTarget target = target_of<T>(a, level, place);
  if (target.label < 0) return;
  const SideTerms terms = side_terms<T>(a, level, place, side, target.label);
  sums.of[2] += target.weight * terms.dfl;
  if (side != 0) return;
  sums.of[0] += target.weight * (1 - terms.ciou);
  sums.of[1] -=
      target.weight *
      static_cast<double>(static_cast<const T*>(
          level.cls)[place * a.num_classes + a.classes[target.label]]);
  sums.of[3] += target.weight;
}

// One lane's share of the sum of one item over a level.
HEADROOM_HD double place_sum(const PlaceLossArguments& a, int level, int item,
                             int lane) {
  const int64_t count = kPlaceParts * a.blocks;
  const double* const first = a.partial + level * count * kPlaceSums + item;
  double sum = 0;
  for (int64_t block = lane; block < count; block += kLanes) {
    sum += first[block * kPlaceSums];
  }
  return sum;
}

// Writes items and total, from the sums of all levels.
HEADROOM_HD void write_place_loss(const PlaceLossArguments& a,
                                  const double* sums) {
  const double gains[kPlaceSums] = {a.box_gain, a.cls_gain, a.dfl_gain, 1};
  double total = 0;
  for (int item = 0; item < kPlaceSums; ++item) {
    double sum = 0;
    for (int level = 0; level < a.num_levels; ++level) {
      sum += sums[level * kPlaceSums + item];
    }
    a.items[item] = gains[item] * sum;
    if (item < kPlaceSums - 1) total += a.items[item];
  }
  *a.total = total * (a.scales[0] * a.scales[1]);
}

// --- gradients ---

HEADROOM_HD double place_scale(const PlaceLossArguments& a) {
  return *a.by_total * (a.scales[0] * a.scales[1]);
}

// One lane's classes of a place: V adjacent ones of every kLanes * V.
template <typename T, typename G, int V>
HEADROOM_HD void class_gradient(const PlaceLossArguments& a,
                                const PlaceLossLevel& level, int64_t place,
                                int lane) {
  const PlaceTarget target = target_of<T>(a, level, place);
  const int64_t own_class = target.label < 0 ? -1 : a.classes[target.label];
  const double scale = place_scale(a) * a.cls_gain;
  const T* const logits =
      static_cast<const T*>(level.cls) + place * a.num_classes;
  G* const to =
      static_cast<G*>(level.cls_gradient) + place * level.cls_channels;
  for (int64_t first = lane * V; first < level.cls_channels;
       first += kLanes * V) {
    Pack<G, V> values;
    for (int v = 0; v < V; ++v) {
      const int64_t c = first + v;
      T value = 0;
      if (c < a.num_classes) {
        value = kernels::score_of(logits[c]) * static_cast<T>(scale);
        if (c == own_class) value -= static_cast<T>(scale * target.weight);
      }
      values.at[v] = static_cast<G>(value);
    }
    *reinterpret_cast<Pack<G, V>*>(to + first) = values;
  }
}

// The logits of one side.
template <typename T, typename G>
HEADROOM_HD void side_gradient(const PlaceLossArguments& a,
                               const PlaceLossLevel& level, int64_t number) {
  constexpr int kWidth = kVectorBytes / sizeof(G);
  static_assert(kDistanceBins % kWidth == 0);
  const int64_t place = number / kBoxSides, side = number % kBoxSides;
  const PlaceTarget target = target_of<T>(a, level, place);
  G* const to = static_cast<G*>(level.box_gradient) + number * kDistanceBins;
  SideTerms terms = {};
  if (target.label >= 0) {
    terms = side_terms<T>(a, level, place, side, target.label);
  }
  const double weight = place_scale(a) * target.weight;
  for (int first = 0; first < kDistanceBins; first += kWidth) {
    Pack<G, kWidth> values;
    for (int v = 0; v < kWidth; ++v) {
      values.at[v] =
          static_cast<G>(static_cast<T>(weight * terms.gradient[first + v]));
    }
    *reinterpret_cast<Pack<G, kWidth>*>(to + first) = values;
  }
}

// The launchers; see launch.h for their contract.
extern "C" {
int headroom_best_places(const PlaceLossArguments* arguments, void* stream);
int headroom_place_owners(const PlaceLossArguments* arguments, void* stream);
int headroom_place_loss(const PlaceLossArguments* arguments, void* stream);
int headroom_place_loss_gradient(const PlaceLossArguments* arguments,
                                 void* stream);
}

}  // namespace headroom::cuda
