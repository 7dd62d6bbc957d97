// choose_anchors decides which anchors a run trains with, and says why.
//
// The model's anchors stay while they match more than 0.98 of the boxes;
// else new ones are found from the boxes, and taken if they match more. A
// run that asks for found anchors (hyp.anchors) gets them however well the
// model's fit. The number of threads changes no bit.
//
// Errors: Error (exit 4) where found anchors are asked for and the boxes are
// too few.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/anchors/box_fit.h"
#include "worker/data/sampling/random.h"

namespace headroom::anchors {

// find_anchors finds shapes that match a data set's boxes.
//
// YOLOv5's AutoAnchor: k-means over the boxes of which a side has 2 pixels or
// more (30 rounds), then 1,000 mutations, each kept when it raises the fitness
// (box_fit.h): every side is multiplied by 1 + N(0, 0.1), within 0.3 to 3, with
// probability 0.9. No side is below 2 pixels. Every draw is a function of the
// seed.
// The number of threads changes no bit.

// k-means over box sizes finds the shapes that boxes gather around.
//
// Lloyd, "Least squares quantization in PCM", 1982, in the plane of width and
// height, each divided by its standard deviation; started as k-means++ does
// (Arthur, Vassilvitskii, "k-means++: the advantages of careful seeding",
// 2007).
//
// Returns `num_clusters` centres after at most `num_iterations` rounds; fewer
// where there are fewer different sizes. REQUIRES: num_clusters > 0.
std::vector<Anchor> k_means(const std::vector<BoxSize>& boxes,
                            int64_t num_clusters, int64_t num_iterations,
                            sampling::RandomStream& random,
                            int64_t num_threads);

inline constexpr float kLeastSearchedSide = 2;  // pixels

// Boxes that the search looks at.
std::vector<BoxSize> searched_boxes(const std::vector<BoxSize>& boxes);

// `num_anchors` by rising area, in hundredths of a pixel; none where the boxes
// have fewer different sizes. REQUIRES: threshold > 1.
std::vector<Anchor> find_anchors(const std::vector<BoxSize>& boxes,
                                 int64_t num_anchors, double threshold,
                                 uint64_t seed, int64_t num_threads);

inline constexpr double kEnoughRecall = 0.98;

struct AnchorQuestion {
  layers::AnchorList current;   // the model's
  std::vector<BoxSize> boxes;   // found from these
  std::vector<BoxSize> varied;  // judged by these: each image enlarged or
                                //   reduced a little, as training does
  double threshold = 4;         // hyp.anchor_t
  bool must_find = false;       // hyp.anchors
  uint64_t seed = 0;
  int64_t num_threads = 1;
};

struct AnchorChoice {
  layers::AnchorList
      anchors;         // those to train with; like the question's, in levels
  bool found = false;  // they are not the question's
  double recall_before = 0, recall = 0;
  std::string reason;  // one sentence
};

// REQUIRES: question.current has a level.
AnchorChoice choose_anchors(const AnchorQuestion& question);

}  // namespace headroom::anchors
