// DeviceKernels: the project's own CUDA kernels as operations on tensors: the
// passes of batch norm + SiLU (worker/kernels/map_kernels.h), the loss
// (worker/kernels/loss_kernels.h), the end of a step, and augmentation.
// Threads, errors: as MapKernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "worker/kernels/commit_numbers.h"
#include "worker/kernels/loss_kernels.h"
#include "worker/kernels/map_kernels.h"

namespace headroom::devices {

// A range of the flat buffer that uses one parameter group's coefficients.
struct FlatBufferRange {
  int64_t offset = 0;  // in elements
  int64_t size = 0;
  int group = 0;
};

// The buffers that one optimizer updates: flat contiguous tensors of equal size
// on one device, all float32 or all float64.
struct FlatBuffers {
  at::Tensor parameters, gradients, accumulated;
  at::Tensor first, second;  // moments; second is undefined for SGD
  at::Tensor average;        // EMA; may be undefined
};

// Device memory through which host and device decide about a step.
struct CommitPlace {
  at::Tensor numbers;  // the bytes of a kernels::CommitNumbers
  at::Tensor outcome;  // double [kernels::kOutcomeDoubles]
};

// Updates one part of the model at the end of a step
// (worker/kernels/commit_numbers.h). Other elements are only averaged (EMA).
class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;
  // The number of partial sums that squares() writes.
  virtual int64_t num_partial() const = 0;
  // Writes partial sums of the squared gradients. REQUIRES: buffers with the
  // size and device given at creation; partial: double [num_partial()].
  virtual void squares(const FlatBuffers& buffers, const CommitPlace& place,
                       const at::Tensor& partial) = 0;
  // Accumulates and clips gradients and updates parameters and their EMA, if
  // the outcome says that the step counts.
  virtual void commit(const FlatBuffers& buffers, const CommitPlace& place) = 0;
};

// The running statistics of all batch norms, and their EMA.
struct RunningStatistics {
  at::Tensor values, average;  // flat, float32 or float64
  at::Tensor sums;             // double: sums of the step's groups
  at::Tensor places;           // int64: index into sums for each value
  double momentum = 0;
};

class DeviceKernels : public kernels::MapKernels, public kernels::LossKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Copies a contiguous CPU tensor into a device tensor of the same sizes and
  // type. Unlike upload(), it allocates no device memory.
  virtual void upload_into(const at::Tensor& host,
                           const at::Tensor& target) = 0;

  // REQUIRES: ranges in ascending order without overlap, inside [0, size).
  virtual std::unique_ptr<DeviceOptimizer> make_optimizer(
      int device, std::span<const FlatBufferRange> ranges, int64_t size) = 0;
  // Decides whether the step counts, from all optimizers' partial sums and the
  // step's items, and writes the outcome.
  virtual void decide(const at::Tensor& partial, const at::Tensor& items,
                      const CommitPlace& place) = 0;
  // Updates the running statistics if the outcome says that the step counts.
  virtual void move_running(const RunningStatistics& statistics,
                            const CommitPlace& place) = 0;

  // Renders images [n, rows, W, bands] from n packed samples
  // (worker/kernels/packed_sample.h); sample i begins at byte starts[i] of
  // `region`. The bytes equal those that the CPU renders. REQUIRES: dense uint8
  // or uint16 tensors on one device, and samples packed from tiles of that
  // type.
  virtual void render_samples(const at::Tensor& region,
                              std::span<const int64_t> starts,
                              const at::Tensor& images) = 0;
};

}  // namespace headroom::devices
