// Simulates the loss of each level of the head (worker/loss/level_loss.h), or
// of a head without anchors (worker/loss/place_loss.h).
//
//   keeps      the objectness map; per match the box's gradient, the objectness
//              target and the class logits; with a teacher the head's gradient;
//              on a device the packed targets
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
  bool has_anchors = true;
  int64_t merged_bytes = 0;  // merged_place_bytes() if images are split
};

// Bytes of the places that the labels of split images take, as ranks exchange
// them, for `boxes` labels.
int64_t merged_place_bytes(int64_t boxes, int64_t ranks);

// Bytes of a micro-batch's targets in the packed form for a device.
int64_t packed_target_bytes(const LossShape& shape, int64_t element_bytes);

// Adds the losses' nodes as roots of backward. REQUIRES: one entry of
// shape.matches per head with anchors.
void run_loss(const OpContext& context, const std::vector<Map>& heads,
              const LossShape& shape);

}  // namespace headroom::predict
