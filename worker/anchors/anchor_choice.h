// choose_anchors decides which anchors a run trains with, and says why.
//
// The model's anchors stay while they answer for more than 0.98 of the boxes;
// else new ones are found from the boxes, and taken if they answer for more. A
// run that asks for found anchors (hyp.anchors) gets them however well the
// model's fit. The number of threads changes no bit.
//
// Errors: Error (exit 4) where found anchors are asked for and the boxes are
// too few.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/layers/anchor_list.h"
#include "worker/anchors/box_fit.h"

namespace headroom::anchors {

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
