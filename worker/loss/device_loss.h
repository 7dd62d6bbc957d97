// device_loss: the loss over all levels where the heads are not on the CPU, as
// one autograd function and two kernels each way (worker/kernels/
// loss_kernels.h).
//
// Everything that follows from labels alone (which cells match, which of a
// cell's matches is the last) is packed by the host (packed_targets.h), and the
// numbers of a step that the launches do not depend on lie on the device, too:
// so nothing waits for the host, and all of it can be captured as a graph. For
// backward it keeps the objectness logits and the matches, not the heads.
//
// Meaning: as in level_loss.h; total and items lie on the device.
// Threads: set_loss_kernels before any other; the rest reentrant.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/kernels/loss_kernels.h"
#include "worker/loss/level_loss.h"
#include "worker/loss/packed_targets.h"

namespace headroom::loss {

// Heads of this device type go through `kernels` from now on; null: none do.
// Borrowed.
void set_loss_kernels(c10::DeviceType type, kernels::LossKernels* kernels);

// Null: the CPU's own loops. Error for a head elsewhere that has none.
kernels::LossKernels* loss_kernels_for(const at::Tensor& head);

// The numbers of a step, on the host: double [levels * 3 + 2]
// (kernels::LossCall). `loss_scale` multiplies the total, not the items.
at::Tensor step_scales(const std::vector<LevelScales>& levels,
                       double loss_scale);
kernels::LossRules loss_rules(const LevelScales& scales);

HeadSize size_of(const at::Tensor& head);

// REQUIRES: targets and scales on the heads' device.
LevelLoss device_loss(kernels::LossKernels& kernels,
                      const std::vector<at::Tensor>& heads,
                      const PackedTargets& targets, const at::Tensor& scales,
                      const kernels::LossRules& rules);

}  // namespace headroom::loss
