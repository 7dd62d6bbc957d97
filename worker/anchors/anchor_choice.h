// choose_anchors decides which anchors a run trains with, and gives the reason.
//
// The model's anchors are kept if they match more than 0.98 of the boxes.
// Otherwise new anchors are searched from the boxes, and used if they match
// more boxes. If hyp.anchors is set, the new anchors are always used. The
// number of threads changes no bit of the result.
//
// Errors: throws Error (exit 4) if hyp.anchors is set and there are too few
// boxes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/anchors/box_fit.h"
#include "worker/data/sampling/random.h"

namespace headroom::anchors {

// find_anchors searches anchors that match a data set's boxes.
//
// YOLOv5's AutoAnchor: k-means (30 rounds) over the boxes with a side of 2
// pixels or more, then 1,000 mutations. A mutation multiplies every side by 1 +
// N(0, 0.1), limited to 0.3 to 3, with probability 0.9, and is kept if it
// raises the fitness (box_fit.h). No side gets below 2 pixels. Every draw is a
// function of the seed, and the number of threads changes no bit of the result.
// The search computes the fitness of all boxes 1,001 times; that takes most of
// its time.

// k_means finds the sizes around which boxes cluster.
//
// The algorithm is Lloyd's ("Least squares quantization in PCM", 1982), in the
// plane of width and height, each divided by its standard deviation. The first
// centres are chosen as in k-means++ (Arthur, Vassilvitskii, "k-means++: the
// advantages of careful seeding", 2007).
//
// Returns `num_clusters` centres after at most `num_iterations` rounds, or
// fewer if there are fewer different sizes. REQUIRES: num_clusters > 0.
std::vector<Anchor> k_means(const std::vector<BoxSize>& boxes,
                            int64_t num_clusters, int64_t num_iterations,
                            sampling::RandomStream& random,
                            int64_t num_threads);

inline constexpr float kLeastSearchedSide = 2;  // pixels

// The boxes used in the search: boxes with at least one side of
// kLeastSearchedSide or more.
std::vector<BoxSize> searched_boxes(const std::vector<BoxSize>& boxes);

// Returns `num_anchors` anchors sorted by area, rounded to hundredths of a
// pixel; an empty list if the boxes have fewer different sizes. REQUIRES:
// threshold > 1.
std::vector<Anchor> find_anchors(const std::vector<BoxSize>& boxes,
                                 int64_t num_anchors, double threshold,
                                 uint64_t seed, int64_t num_threads);

inline constexpr double kEnoughRecall = 0.98;

struct AnchorQuestion {
  layers::AnchorList current;  // anchors of the model
  std::vector<BoxSize> boxes;  // boxes from which anchors are searched
  // Boxes by which anchors are judged. Each image is scaled by a random factor
  // near 1, as in training.
  std::vector<BoxSize> varied;
  double threshold = 4;    // hyp.anchor_t; larger accepts worse matches
  bool must_find = false;  // hyp.anchors: never keep the current ones
  uint64_t seed = 0;
  int64_t num_threads = 1;
};

struct AnchorChoice {
  // Anchors to train with, grouped by level as in AnchorQuestion::current.
  layers::AnchorList anchors;
  bool found = false;  // whether new anchors are used
  double recall_before = 0, recall = 0;
  std::string reason;  // one sentence for users
};

// REQUIRES: question.current has at least one level.
AnchorChoice choose_anchors(const AnchorQuestion& question);

}  // namespace headroom::anchors
