// device_level_loss: level_loss where the head is not on the CPU.
//
// Everything that follows from labels alone (which cells match, which of a
// cell's rows is the last) is worked out on the host; the rest are operators
// and LossKernels on the device, so that nothing waits for it. Rows of one cell
// are added up in no fixed order unless LibTorch is asked for determinism.
//
// Shapes and meaning: as in level_loss.h; total and items lie on the device.
// Threads: set_loss_kernels before any other; the rest reentrant.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/kernels/loss_kernels.h"
#include "worker/loss/level_loss.h"

namespace headroom::loss {

// From now on heads of this device type go through `kernels`; null: none do.
// Borrowed.
void set_loss_kernels(c10::DeviceType type, kernels::LossKernels* kernels);

// Null: the CPU's own loops. Error for a head elsewhere that has none.
kernels::LossKernels* loss_kernels_for(const at::Tensor& head);

// REQUIRES: a head whose cells [n, H, W, anchors] are rows of fields in that
// order, as Detect makes it; targets on the CPU.
LevelLoss device_level_loss(kernels::LossKernels& kernels,
                            const at::Tensor& head, const LevelTargets& targets,
                            const LevelScales& scales);

}  // namespace headroom::loss
