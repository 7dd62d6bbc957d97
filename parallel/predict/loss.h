// Simulates the loss of each level of the head (worker/loss/level_loss.h), or
// of a head without anchors (worker/loss/place_loss.h).
//
//   keeps      the objectness map; per match the box's gradient, the objectness
//              target and the class logits; with a teacher the head's gradient;
//              on a device the packed targets
//              without anchors: the head, and the targets of owned places
//   backward   allocates the head's gradient
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

struct LossShape {
  int64_t num_classes = 80;
  std::vector<int64_t> matches;  // per level
  bool focal = false;
  bool smooths_labels = false;
  bool has_teacher = false;
  bool has_targets = false;  // the targets are on the device before the loss
  // Only without anchors: the most labels of the micro-batch, and the ranks
  // that share its images.
  bool has_anchors = true;
  int64_t boxes = 0;
  int64_t ranks_of_image = 1;
};

// Bytes of a micro-batch's targets in the packed form for a device.
int64_t packed_target_bytes(const LossShape& shape,
                            const MicroBatchShape& maps);

// Adds the losses' nodes as roots of backward. REQUIRES: one entry of
// shape.matches per head with anchors.
void run_loss(const OpContext& context, const std::vector<Map>& heads,
              const LossShape& shape);

}  // namespace headroom::predict
