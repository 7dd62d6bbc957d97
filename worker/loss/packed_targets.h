// PackedTargets: a micro-batch's matches as the device's loss reads them: one
// buffer of bytes for all levels, which loader threads fill and one copy takes
// to the device.
//
// A level has room for `capacity` matches, however many there are: buffers of
// equal capacities are laid out alike, so that a graph of the device that was
// captured with one holds for all (kernels::MatchLayout).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// A level's head, [images, anchors, height, width, 5 + classes].
struct HeadSize {
  int64_t images = 0, anchors = 0, height = 0, width = 0, classes = 0;
};

// A level of a model: heads' sizes follow from it and the images'.
struct HeadGrid {
  int64_t stride = 1, anchors = 0;
};
std::vector<HeadSize> head_sizes(const std::vector<HeadGrid>& grids,
                                 int64_t classes, int64_t images,
                                 int64_t height, int64_t width);

struct PackedTargets {
  at::Tensor bytes;                         // uint8, on the host or on a device
  std::vector<int64_t> begins, capacities;  // each level's
  // Laid out as that one.
  bool is_like(const PackedTargets& other) const {
    return begins == other.begins && capacities == other.capacities;
  }
};

// A capacity of 0 is that of the matches there are; so is one that is too
// small. REQUIRES: targets of the heads' rows. Throws HEADROOM_CHECK's error
// where a match lies outside its head.
PackedTargets pack_targets(const std::vector<LevelTargets>& targets,
                           const std::vector<HeadSize>& heads,
                           int64_t capacity = 0);

}  // namespace headroom::loss
