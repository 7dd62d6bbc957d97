// Bounds the number of boxes in a micro-batch, from the box counts of the data
// set's images and the augmentation.
//
// Each sample has an image of its own; an epoch uses each image once. A mosaic
// adds three images drawn from the whole data set with replacement; mixup
// blends it with a mosaic of four drawn images. (A mosaic of nine adds eight,
// and mixup nine.) Cutting boxes away only reduces their number. So n samples
// have at most
//
//   own(n) + drawn,    own(n): boxes of the data set's n fullest images
//
// boxes, where `drawn` is the smaller of two bounds:
//
//   certain   every drawn image has as many boxes as the fullest image, and 3 n
//             images are drawn (7 n with mixup)
//   likely    Bernstein's inequality for a sum S of k independent numbers of
//             mean m and variance v, none above m + b:
//               P(S >= k m + t) <= exp(-t^2 / (2 k v + 2 b t / 3)),
//             so with L = ln(1 / 1e-9), for one micro-batch in 1e9:
//               t = L b / 3 + sqrt((L b / 3)^2 + 2 L k v)
//             The inequality is used twice, and the smaller bound counts: with
//             the boxes of each drawn image, as if every sample were a mosaic;
//             and with the boxes drawn per sample, if only some samples are
//             mosaics or mixed.
//
// With --image-weights every drawn image may be the fullest one, so all images
// count as the fullest and the bound is certain.
//
// Copy-paste adds to each mosaic at most its share of the mosaic's boxes,
// rounded, which is at most half a box more than the exact share.
//
// S. N. Bernstein 1924; Boucheron, Lugosi, Massart: "Concentration
// Inequalities", 2013, section 2.8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::predict {

// The probability that a micro-batch has more boxes than the likely bound.
inline constexpr double kMoreBoxesProbability = 1e-9;

// The number of boxes in the images of a data set, as groups of images with
// equally many boxes.
struct LabelStatistics {
  struct Group {
    int64_t boxes = 0;   // per image of this group
    int64_t images = 0;  // > 0
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;  // sorted by `boxes`, ascending
  int64_t outlines = 0;       // boxes with an outline

  bool operator==(const LabelStatistics&) const = default;
  bool is_known() const { return !groups.empty(); }
  int64_t num_images() const;
  int64_t most_boxes() const;  // the most boxes in one image
  double mean() const;
  double variance() const;
  // Total boxes of the `num_images` fullest images, or of all if there are
  // fewer.
  int64_t boxes_of_fullest(int64_t num_images) const;
};

// `boxes` has the number of boxes of each image. Numbers above 64 are rounded
// up to six significant bits, but not above the maximum, so there are few
// groups and the numbers remain upper bounds.
LabelStatistics label_statistics(const std::vector<int64_t>& boxes);

// The statistics as text. "0x12 3x40": 12 images without a box, 40 with three;
// "0x12 3x40 outlines=9": nine of these 120 boxes have an outline. "" if no
// statistics are known.
std::string to_text(const LabelStatistics& statistics);
// Returns no value if the text has another form or the groups are not
// ascending.
std::optional<LabelStatistics> parse_label_statistics(std::string_view text);

// The label statistics of a run, and its augmentation.
struct LabelBound {
  LabelStatistics statistics;
  int64_t assumed_boxes_per_image = 100;  // used if statistics are unknown
  double mosaic = 0;                      // probability of a mosaic
  double mixup = 0;  // probability that a mosaic is blended with another
  int64_t images_of_mosaic = 4;  // number of images in the largest mosaic
  // Copy-paste repeats round(copy_paste n) of a mosaic's n outlined boxes.
  double copy_paste = 0;
  bool repeats = false;  // true if each sample may be any image

  bool operator==(const LabelBound&) const = default;
};

struct BoxBound {
  enum class Kind { kAssumed, kCertain, kLikely };
  int64_t boxes = 0;
  Kind kind = Kind::kAssumed;
  bool operator==(const BoxBound&) const = default;
};

// The largest number of boxes that `samples` samples of one step have together.
// REQUIRES: samples >= 0.
BoxBound most_boxes(const LabelBound& labels, int64_t samples);

// The most matches between `boxes` and `anchors`
// (worker/loss/target_assignment.h): a box matches an anchor at its own cell
// and, if its centre is on a border, at all four neighbours.
inline constexpr int64_t most_matches(int64_t boxes, int64_t anchors) {
  constexpr int64_t kCellsPerBoxAndAnchor = 5;
  return boxes * anchors * kCellsPerBoxAndAnchor;
}

// The bound as text: "at most 812 boxes in 16 images, from the labels of 205
// images (more in one of 1e9 micro-batches)"; "100 boxes per image assumed".
std::string bound_text(const LabelBound& labels, int64_t samples);

}  // namespace headroom::predict
