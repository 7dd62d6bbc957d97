// DeviceKernels: the project's own kernels on a CUDA device, over tensors: the
// passes of batch norm + SiLU (worker/kernels/map_kernels.h), the rows of the
// loss (worker/kernels/loss_kernels.h), a step's end, and augmentation.
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

// A range of the flat buffer whose elements are updated with one parameter
// group's coefficients.
struct FlatBufferRange {
  int64_t offset = 0;  // counted in elements
  int64_t size = 0;
  int group = 0;
};

// What the optimizer moves together: flat contiguous tensors of one size on one
// device, all float32 or all float64.
struct FlatBuffers {
  at::Tensor parameters, gradients, accumulated;
  at::Tensor first, second;  // moments; SGD has no second
  at::Tensor average;        // may be undefined
};

// How the host and the device speak of a step's end, in the device's memory.
struct CommitPlace {
  at::Tensor numbers;  // bytes of kernels::CommitNumbers
  at::Tensor outcome;  // double [kernels::kOutcomeDoubles]
};

// A piece of a step's end (worker/kernels/commit_numbers.h). Elements outside
// all ranges are averaged only.
class DeviceOptimizer {
 public:
  virtual ~DeviceOptimizer() = default;
  // How many partial sums squares() writes.
  virtual int64_t num_partial() const = 0;
  // REQUIRES: buffers of the size and on the device given when it was made;
  // partial: double [num_partial()].
  virtual void squares(const FlatBuffers& buffers, const CommitPlace& place,
                       const at::Tensor& partial) = 0;
  // Accumulates, clips, updates the parameters and their EMA if the outcome
  // says so.
  virtual void commit(const FlatBuffers& buffers, const CommitPlace& place) = 0;
};

// The running statistics of all batch norms, and their average.
struct RunningStatistics {
  at::Tensor values, average;  // flat, float32 or float64
  at::Tensor sums;             // double: of the step's groups
  at::Tensor places;           // int64: of each value among the sums
  double momentum = 0;
};

class DeviceKernels : public kernels::MapKernels, public kernels::LossKernels {
 public:
  virtual ~DeviceKernels() = default;

  // Copies a contiguous CPU tensor into one of the device, of the same sizes
  // and type; as upload(), but takes no memory of the device.
  virtual void upload_into(const at::Tensor& host,
                           const at::Tensor& target) = 0;

  // REQUIRES: ranges in ascending order without overlap, inside [0, size).
  virtual std::unique_ptr<DeviceOptimizer> make_optimizer(
      int device, std::span<const FlatBufferRange> ranges, int64_t size) = 0;
  // Writes the outcome, of all optimizers' partial sums and the step's items.
  virtual void decide(const at::Tensor& partial, const at::Tensor& items,
                      const CommitPlace& place) = 0;
  // Moves them if the outcome commits.
  virtual void move_running(const RunningStatistics& statistics,
                            const CommitPlace& place) = 0;

  // Renders images [n, rows, W, bands] from n packed samples
  // (worker/kernels/packed_sample.h), the i-th from byte starts[i] of `region`
  // on: the bytes that the CPU makes of them.
  // REQUIRES: dense uint8 or uint16 on one device, samples packed from tiles of
  // that type.
  virtual void render_samples(const at::Tensor& region,
                              std::span<const int64_t> starts,
                              const at::Tensor& images) = 0;
};

}  // namespace headroom::devices
