// device_batch_norm: grouped_batch_norm where the map is not on the CPU.
//
// The passes over the map are the device's (worker/kernels/map_kernels.h), and
// so is what follows from their sums: nothing waits for the device. Sums that
// ranks add up are handed to the exchange where they are.
//
// Shapes and meaning: as in grouped_batch_norm.h.
// Threads: set_map_kernels before any other; the rest reentrant.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/kernels/cpu/grouped_batch_norm.h"
#include "worker/kernels/map_kernels.h"

namespace headroom::kernels {

// Maps of this device type go through `kernels` from now on; null: none do.
// Borrowed.
void set_map_kernels(c10::DeviceType type, MapKernels* kernels);

// Null: the CPU's own loops. Error for a map elsewhere that has none.
MapKernels* map_kernels_for(const at::Tensor& map);

at::Tensor device_batch_statistics(MapKernels& kernels, const at::Tensor& y,
                                   const GroupedBatchNorm& norm, double epsilon,
                                   const at::Tensor& batch_norm_sums);

at::Tensor device_normalise_and_activate(MapKernels& kernels,
                                         const at::Tensor& y,
                                         const at::Tensor& statistics,
                                         const at::Tensor& norm_weight,
                                         const at::Tensor& norm_bias,
                                         const GroupedBatchNorm& norm);

GroupedBatchNormGradients device_batch_norm_gradients(
    MapKernels& kernels, at::Tensor dout, const at::Tensor& y,
    const at::Tensor& statistics, const at::Tensor& norm_weight,
    const at::Tensor& norm_bias, const GroupedBatchNorm& norm,
    const AffineGradients& added_to);

}  // namespace headroom::kernels
