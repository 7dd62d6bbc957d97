// Converts operands to the kernels' arguments, with checks. No CUDA headers.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/cuda/kernels/flat_buffer_body.h"
#include "parallel/cuda/kernels/image_pass.h"
#include "parallel/cuda/kernels/loss_body.h"
#include "parallel/cuda/kernels/place_body.h"
#include "parallel/cuda/kernels/pool_passes.h"
#include "parallel/cuda/kernels/render_samples.h"
#include "worker/kernels/device_kernels.h"

namespace headroom::cuda {

// The arguments of one launch, which renders samples `first` to `first` +
// kMostRendered - 1, or to the last one. REQUIRES: first < starts.size().
RenderArguments render_arguments(const at::Tensor& region,
                                 std::span<const int64_t> starts,
                                 const at::Tensor& images, size_t first);

ImageArguments image_arguments(const at::Tensor& images,
                               const at::Tensor& input);

// The arguments of max pooling and of its gradient.
PoolArguments pool_arguments(const at::Tensor& x, int64_t window,
                             const at::Tensor& out, const at::Tensor& choices);
PoolArguments pool_gradient_arguments(const at::Tensor& dout,
                                      const at::Tensor& choices, int64_t window,
                                      const at::Tensor& dx);

// The loss kernels' arguments, for backward if the call has `by_total`.
LossArguments loss_arguments(const kernels::LossCall& call);

// The same for a head without anchors; for any of its passes.
PlaceLossArguments place_loss_arguments(const kernels::PlaceLossCall& call);

// Divides [0, size) into pieces in order, each inside one range or outside all
// of them. REQUIRES: as DeviceKernels::make_pieces (checked).
std::vector<FlatBufferPiece> flat_buffer_pieces(
    std::span<const kernels::FlatBufferRange> ranges, int64_t size);

// Sets all arguments except the partial sums.
FlatBufferArguments flat_buffer_arguments(const kernels::FlatBuffers& buffers,
                                          const kernels::CommitPlace& place);
DecisionArguments decision_arguments(const at::Tensor& partial,
                                     const kernels::CommitPlace& place);
RunningArguments running_arguments(const kernels::RunningStatistics& statistics,
                                   const kernels::CommitPlace& place);

}  // namespace headroom::cuda
