// PlaceLossCall: the arguments of the assignment and the loss of heads without
// anchors on a device (device_kernels.h). The rules are those of
// worker/loss/place_assignment.h and place_loss.h.
//
// One call holds the tensors of all passes:
//
//   best_places()          the distances of all places, and each label's best
//                          places: `taken`
//   place_owners()         the owner and alignment of each place, and each
//                          label's `maxima`, from `all_taken`
//   place_loss()           `items` and `total`, from `all_maxima`
//   place_loss_gradient()  the gradients of all maps
//
// If the rows of an image are split over ranks, the ranks exchange `taken` and
// `maxima` between the passes. Sizes depend only on the capacity for labels,
// and the labels' number is read on the device. So no launch depends on values
// of the step, and a captured graph is valid for every step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "parallel/base/place_memory.h"
#include "worker/kernels/loss_call.h"

namespace headroom::kernels {

// The largest number of thread blocks that sum over a level's class logits. The
// same number of blocks sum over its owned places.
inline constexpr int64_t kPlaceLossBlocks = kPlaceBlocksOfLevel / 2;
// The largest PlaceRule::chosen on a device.
inline constexpr int64_t kMostTakenPlaces = kPlacesPerLabel;
// box, cls and dfl with their gains, and the sum of the weights.
inline constexpr int64_t kPlaceLossItems = kPlaceSums;
// The scales: the number of images of the global batch, and the factor of the
// total.
inline constexpr int64_t kPlaceLossScales = 2;
// Doubles of a taken place: its alignment, which is 0 for an empty entry, and
// the number of the place in the whole image.
inline constexpr int64_t kTakenFields = kNumbersPerTakenPlace;
// Doubles of a label's maxima: the largest alignment and overlap.
inline constexpr int64_t kMaximaFields = kNumbersOfMaxima;

// The part of the loss that is constant in a run.
struct PlaceLossRules {
  double box_gain = 0, cls_gain = 0, dfl_gain = 0;
  int64_t chosen = kMostTakenPlaces;  // places that a label takes
};

// Layout of the labels of a micro-batch in their packed buffer, for at most
// `capacity` labels, which are sorted by image:
//
//   int32    the number of labels, then padding to 16 bytes
//   int32    [images + 1]: the first label of each image; then the number
//   int32    [capacity]: the label's image
//   int32    [capacity]: its class
//   T        [capacity, 4]: its box, as corners in pixels
struct PlaceLabelLayout {
  int64_t capacity = 0;
  int64_t images = 0;
  int64_t element_bytes = 4;  // bytes of a T

  static constexpr int64_t aligned(int64_t bytes) {
    return MatchLayout::aligned(bytes);
  }
  int64_t begins() const { return MatchLayout::kAlignment; }
  int64_t image() const { return begins() + aligned(4 * (images + 1)); }
  int64_t classes() const { return image() + aligned(4 * capacity); }
  int64_t boxes() const { return classes() + aligned(4 * capacity); }
  int64_t bytes() const {
    return boxes() + aligned(4 * element_bytes * capacity);
  }
};

// All tensors are dense and on one device. T is the type of the maps. The
// places of all levels, [level][image][row][column], are numbered in the
// tensors of [places].
struct PlaceLossCall {
  struct Level {
    // Logits, float32 or float64: [n, rows, W, 4 * bins], [n, rows, W, classes]
    at::Tensor box, cls;
    int64_t stride = 1;
    int64_t height = 0;     // rows of the whole image's level
    int64_t first_row = 0;  // the first of the rows in the maps
    // Backward writes the maps' gradients here, [n, rows, W, channels], with
    // zeros in the channels that the maps lack. Their type is T; or they have
    // 16 bits and a multiple of kChannelsTogether channels.
    at::Tensor box_gradient, cls_gradient;
  };
  std::vector<Level> levels;  // finest first
  int64_t num_classes = 0;
  int64_t capacity = 0;  // of the labels
  at::Tensor labels;     // bytes, with the layout of PlaceLabelLayout
  at::Tensor scales;     // double [kPlaceLossScales]
  PlaceLossRules rules;

  at::Tensor distances;   // T [places, 4], in cells
  at::Tensor owners;      // int64 [places]: 1 + the label, or 0
  at::Tensor alignments;  // T [places], of owned places
  // double [capacity, kMostTakenPlaces, kTakenFields], written for each label
  at::Tensor taken;
  at::Tensor all_taken;   // [parts, ...]: `taken` of all ranks with the images
  at::Tensor maxima;      // double [capacity, kMaximaFields]
  at::Tensor all_maxima;  // [parts, ...]
  // double [levels * 2 * kPlaceLossBlocks * kPlaceLossItems]
  at::Tensor partial;
  at::Tensor items, total;  // double [kPlaceLossItems]; double []
  at::Tensor by_total;      // for backward: gradient of `total`, double []
};

}  // namespace headroom::kernels
