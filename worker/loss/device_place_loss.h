// device_place_loss: the loss of a head without anchors (place_loss.h) for maps
// that are not on the CPU, as one autograd function of four passes
// (worker/kernels/place_loss_call.h).
//
// The device also assigns the places, because the assignment depends on the
// predictions. Only the labels come from the host, packed with room for the
// most labels that a micro-batch may have, and the factors of the step
// (place_scales()). So no launch waits for the host, and the whole loss can be
// captured in a graph. For backward it keeps the maps, and 28 bytes per place
// (48 in float64).
//
// The gradient of a map has the channels and type that the map's producer takes
// (output_convolution() in worker/model/detect.h).
//
// Results: as in place_loss.h; total and items are on the device. May be called
// on any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/kernels/device_kernels.h"
#include "worker/loss/packed_targets.h"
#include "worker/loss/place_loss.h"

namespace headroom::loss {

// The factors of a step, on the host: double [kernels::kPlaceLossScales].
// `images` and `factor` are those of PlaceLossRule.
at::Tensor place_scales(double images, double factor);

// `labels`: made by pack_labels(); `labels` and `scales` are on the maps'
// device. The rule's images and factor are not read. `gather` is called twice,
// on tensors of the device. REQUIRES: rule.places.kept >= rule.places.chosen,
// at most kernels::kMostTakenPlaces (checked).
PlaceLoss device_place_loss(kernels::DeviceKernels& kernels,
                            const std::vector<PlaceMaps>& levels,
                            const PackedTargets& labels,
                            const at::Tensor& scales, const PlaceLossRule& rule,
                            const GatherParts& gather = {});

}  // namespace headroom::loss
