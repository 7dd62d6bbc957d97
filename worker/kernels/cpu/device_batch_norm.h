// device_batch_norm: grouped_batch_norm for a map that is not on the CPU.
//
// The device's kernels do the passes over the map
// (worker/kernels/device_kernels.h) and everything that follows from their
// sums, so the host does not wait for the device. Sums that are added over
// ranks are passed to the exchange as device tensors.
//
// Shapes and results: as in grouped_batch_norm.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/kernels/cpu/grouped_batch_norm.h"
#include "worker/kernels/device_kernels.h"

namespace headroom::kernels {

at::Tensor device_batch_statistics(DeviceKernels& kernels, const at::Tensor& y,
                                   const GroupedBatchNorm& norm, double epsilon,
                                   const at::Tensor& batch_norm_sums);

at::Tensor device_normalise_and_activate(DeviceKernels& kernels,
                                         const at::Tensor& y,
                                         const at::Tensor& statistics,
                                         const at::Tensor& norm_weight,
                                         const at::Tensor& norm_bias,
                                         const GroupedBatchNorm& norm);

GroupedBatchNormGradients device_batch_norm_gradients(
    DeviceKernels& kernels, at::Tensor dout, const at::Tensor& y,
    const at::Tensor& statistics, const at::Tensor& norm_weight,
    const at::Tensor& norm_bias, const GroupedBatchNorm& norm,
    const AffineGradients& added_to);

}  // namespace headroom::kernels
