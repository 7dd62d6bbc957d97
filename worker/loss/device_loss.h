// device_loss: the loss over all levels for heads that are not on the CPU, as
// one autograd function with two kernels in each direction
// (worker/kernels/loss_call.h).
//
// The host packs everything that follows from the labels (which cells match,
// and which match of a cell is the last; packed_targets.h). The factors of a
// step (step_scales()) are in device memory too. So no launch waits for the
// host, and the whole loss can be captured in a graph. For backward it keeps
// the objectness logits and the matches, not the heads. The gradient of a head
// is written in the form that the head's producer takes: a float32 head of
// 16-bit maps may take a 16-bit map (worker/model/detect.h).
//
// Results: as in level_loss.h; total and items are on the device. May be called
// on any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/kernels/device_kernels.h"
#include "worker/loss/level_loss.h"
#include "worker/loss/packed_targets.h"

namespace headroom::loss {

// The factors of a step, on the host: double [levels * 3 + 2]
// (kernels::LossCall). `loss_scale` multiplies the total, not the items.
at::Tensor step_scales(const std::vector<LevelScales>& levels,
                       double loss_scale);
kernels::LossRules loss_rules(const LevelScales& scales);

HeadSize size_of(const at::Tensor& head);

// REQUIRES: targets and scales on the heads' device.
LevelLoss device_loss(kernels::DeviceKernels& kernels,
                      const std::vector<at::Tensor>& heads,
                      const PackedTargets& targets, const at::Tensor& scales,
                      const kernels::LossRules& rules);

}  // namespace headroom::loss
