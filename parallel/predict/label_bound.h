// The most boxes that the samples of a micro-batch have, from how many boxes
// the images of the data set have and from the augmentation.
//
// A sample is an image of its own, in an epoch each image once. In a mosaic
// three images that are drawn from the whole data set join it, with
// replacement; mixup blends it with a mosaic of four drawn ones (of nine
// images: eight join it, and nine are blended in). Boxes that are cut away only
// make fewer. So n samples have at most
//
//   own(n) + drawn,    own(n): the n fullest images of the data set
//
// and of `drawn` two bounds are known, the smaller of which is taken:
//
//   certain   every drawn image is the fullest: 3 n (7 n with mixup) times it
//   likely    Bernstein's inequality for a sum S of k independent numbers of
//             mean m and variance v, none above m + b:
//               P(S >= k m + t) <= exp(-t^2 / (2 k v + 2 b t / 3)),
//             so with L = ln(1 / 1e-9), for one micro-batch in 1e9:
//               t = L b / 3 + sqrt((L b / 3)^2 + 2 L k v)
//             The numbers are the drawn images one by one, as if every sample
//             were a mosaic; or, where mosaics or mixup happen to some samples
//             only, what each sample draws.
//
// Where images are drawn by weight (--image-weights), any may be all of them:
// every image counts as the fullest, for certain.
//
// Copy-paste adds at most a share of a mosaic's boxes, rounded: a mosaic's half
// more than that share.
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

// How many boxes the images of a data set have.
struct LabelStatistics {
  struct Group {
    int64_t boxes = 0;   // boxes of each of its images
    int64_t images = 0;  // > 0
    bool operator==(const Group&) const = default;
  };
  std::vector<Group> groups;  // groups as their boxes rise
  int64_t outlines = 0;       // boxes that have one

  bool operator==(const LabelStatistics&) const = default;
  bool is_known() const { return !groups.empty(); }
  int64_t num_images() const;
  int64_t most_boxes() const;  // the most of an image
  double mean() const;
  double variance() const;
  // Boxes of the `num_images` fullest images, or of as many as there are.
  int64_t boxes_of_fullest(int64_t num_images) const;
};

// `boxes` of each image. Above 64 they are rounded up to six binary digits, but
// not beyond the most: so few groups suffice, and bounds stay bounds.
LabelStatistics label_statistics(const std::vector<int64_t>& boxes);

// "0x12 3x40": 12 images without a box, 40 with three; "0x12 3x40 outlines=9":
// nine of these 120 boxes have an outline. "" if none are known.
std::string to_text(const LabelStatistics& statistics);
// Nothing if the text is not of that form, or not by rising boxes.
std::optional<LabelStatistics> parse_label_statistics(std::string_view text);

// What a run knows of its labels, and its augmentation.
struct LabelBound {
  LabelStatistics statistics;
  int64_t assumed_boxes_per_image = 100;  // used while these are not known
  double mosaic = 0;                      // probability that a sample is one
  double mixup = 0;  // probability that a mosaic is blended with another
  int64_t images_of_mosaic = 4;  // the most that a mosaic has
  // A mosaic with n outlined boxes has round(copy_paste n) of them once more.
  double copy_paste = 0;
  bool repeats = false;  // samples are drawn, each of them any image
};

struct BoxBound {
  enum class Kind { kAssumed, kCertain, kLikely };
  int64_t boxes = 0;
  Kind kind = Kind::kAssumed;
  bool operator==(const BoxBound&) const = default;
};

// The most boxes of `samples` samples of one step together. REQUIRES:
// samples >= 0.
BoxBound most_boxes(const LabelBound& labels, int64_t samples);

// The most matches that so many boxes have of so many anchors
// (worker/loss/target_assignment.h): a box matches an anchor at its own cell
// and, when its centre lies on a border, at all four neighbours.
inline constexpr int64_t most_matches(int64_t boxes, int64_t anchors) {
  constexpr int64_t kCellsPerBoxAndAnchor = 5;
  return boxes * anchors * kCellsPerBoxAndAnchor;
}

// "at most 812 boxes in 16 images, from the labels of 205 images (more in one
// of 1e9 micro-batches)"; "100 boxes per image assumed".
std::string bound_text(const LabelBound& labels, int64_t samples);

}  // namespace headroom::predict
