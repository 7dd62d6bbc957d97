// PackedTargets: the matches of a micro-batch in the form that the device's
// loss reads: one byte buffer for all levels, which loader threads fill and one
// copy moves to the device.
//
// A level has room for `capacity` matches, of which fewer may be used. Buffers
// with equal capacities have the same layout, so a CUDA graph captured with one
// works with all of them (kernels::MatchLayout).
//
// A head without anchors chooses its targets from predictions, so for it the
// buffer has the labels themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "worker/loss/target_assignment.h"

namespace headroom::loss {

// Sizes of a level's head, [images, anchors, height, width, 5 + classes].
struct HeadSize {
  int64_t images = 0, anchors = 0, height = 0, width = 0, classes = 0;
};

// A detection level of a model. With the image size it gives the head's sizes.
struct HeadGrid {
  int64_t stride = 1, anchors = 0;
};
std::vector<HeadSize> head_sizes(const std::vector<HeadGrid>& grids,
                                 int64_t classes, int64_t images,
                                 int64_t height, int64_t width);

struct PackedTargets {
  at::Tensor bytes;                         // uint8, on the host or on a device
  std::vector<int64_t> begins, capacities;  // for each level
  // Returns true if both have the same layout.
  bool is_like(const PackedTargets& other) const {
    return begins == other.begins && capacities == other.capacities;
  }
};

// Each level gets room for `capacity` matches, or for its own number of matches
// if this number is larger. A larger capacity makes equal layouts more likely
// and costs memory. REQUIRES: targets of the rows that the heads hold. Fails
// HEADROOM_CHECK if a match is outside its head.
PackedTargets pack_targets(const std::vector<LevelTargets>& targets,
                           const std::vector<HeadSize>& heads,
                           int64_t capacity = 0);

// Packs the labels of a micro-batch for a head without anchors
// (kernels::PlaceLabelLayout), as one level with room for `capacity` labels or
// for all of them. `type`: of the head's maps, float32 or float64. Fails
// HEADROOM_CHECK if an image or class does not exist.
PackedTargets pack_labels(const std::vector<LabelRow>& labels,
                          int64_t num_classes, int64_t images, int64_t height,
                          int64_t width, at::ScalarType type,
                          int64_t capacity = 0);

}  // namespace headroom::loss
