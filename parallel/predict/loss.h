// The loss of each level of the head (worker/loss/level_loss.h).
//
//   keeps      the objectness map; of each match the box's gradient, the
//              objectness target and the class logits; with a teacher the
//              head's gradient; on a device the packed targets
//   backward   the head's gradient, zeroed and filled
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/predict/op_context.h"

namespace headroom::predict {

struct LossShape {
  int64_t num_classes = 80;
  std::vector<int64_t> matches;  // matches of each level
  bool focal = false;
  bool smooths_labels = false;
  bool has_teacher = false;
  bool has_targets = false;  // their copy is on the device before the loss
};

// Bytes of a micro-batch's targets as a device takes them.
int64_t packed_target_bytes(const LossShape& shape, int64_t element_bytes);

// Adds the losses' nodes as roots of backward. REQUIRES: as many heads as
// levels of matches.
void run_loss(const OpContext& context, const std::vector<Map>& heads,
              const LossShape& shape);

}  // namespace headroom::predict
