// DeviceKernels: the project's own kernels as operations on tensors that are
// not on the CPU: batch norm with activation and other operations on maps, the
// loss, the end of a step, and augmentation.
//
// Model, loss and step contain no CUDA code; they call this interface
// (cpu/kernel_registration.h). The CUDA plugin and the tests' device share one
// implementation of it (parallel/cuda/launched_kernels.h). A new kernel is
// declared here, and with its plain arguments in parallel/cuda/kernels.
//
// Maps are [N, C, H, W] channels-last, float32, float64, bfloat16 or float16.
// Groups are consecutive ranges of samples that cover 0 to N. Weight, bias [C]
// and their gradients are float32, or float64 for a float64 map. Sums,
// statistics and means are [groups, 2, C] double on the same device; statistics
// are mean and inverse deviation. n is the normalised value, z = n * weight +
// bias, and dz is the gradient of z.
//
// The kernels that compute sums also compute everything that follows from them,
// so that no operator runs on a few values per channel. The sums are returned
// and passed in again only if they must be added over ranks.
//
// Work is queued on the device's current stream; no function waits for it. All
// functions may be called on any thread.
//
// Errors: HEADROOM_CHECK fails for invalid shapes, types or devices; c10::Error
// from the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <span>

#include "configs/layers/activation.h"
#include "worker/kernels/commit_numbers.h"
#include "worker/kernels/loss_call.h"
#include "worker/kernels/place_loss_call.h"

namespace headroom::kernels {

struct MapGroup {
  // End of the group's samples, which begin at the end of the previous group.
  int64_t end = 0;
  double values = 0;        // number of values per channel, over all ranks
  bool counts_here = true;  // the group updates the running statistics
};
using MapGroups = std::span<const MapGroup>;

// A map, and the values and function that normalise and activate it.
struct NormedMap {
  at::Tensor y;
  MapGroups groups;
  at::Tensor statistics, weight, bias;
  layers::ActivationFunction activation;
};

// Outputs of the functions that compute statistics. If `running` ([2 * C]
// double) is defined, the mean and unbiased variance of each group with
// counts_here are added to it.
struct StatisticsResult {
  at::Tensor statistics;
  at::Tensor running;
};

// Outputs of a map's gradient sums. The gradients of weight and bias are sums
// over this rank's part of the groups only.
struct GradientSumsResult {
  at::Tensor weight_gradient;
  at::Tensor bias_gradient;
  at::Tensor sums;  // sums of dz and of dz * n; undefined if not wanted
  // The sums divided by the number of values; undefined if not wanted.
  at::Tensor means;
  // true: add to the two gradients instead of overwriting them
  bool adds_gradients = false;
};

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
  at::Tensor pieces;         // on a device: result of make_pieces()
};

// Device memory in which host and device exchange the decision about a step.
struct CommitPlace {
  at::Tensor numbers;     // the bytes of a CommitNumbers
  at::Tensor outcome;     // double [kOutcomeDoubles]
  at::Tensor items = {};  // double [kStepItems], for the decision only
  // If the devices of several ranks decide together: the number of ranks that
  // reject the step (double [1]), and Communicator::failure_word().
  at::Tensor objections = {};
  const int32_t* failure_word = nullptr;
};

// The running statistics of all batch norms, and their EMA.
struct RunningStatistics {
  at::Tensor values, average;  // flat, float32 or float64
  at::Tensor sums;             // double: sums of the step's groups
  at::Tensor places;           // int64: index into sums for each value
  double momentum = 0;
};

class DeviceKernels {
 public:
  virtual ~DeviceKernels() = default;

  // --- batch norm and activation, in the order of a step ---

  // Sets `sums` to the sums of y and of its square.
  virtual void channel_sums(const at::Tensor& y, MapGroups groups,
                            const at::Tensor& sums) = 0;

  virtual void batch_statistics(const at::Tensor& y, MapGroups groups,
                                double epsilon,
                                const StatisticsResult& result) = 0;
  // Computes the statistics from the sums of channel_sums(), which may have
  // been added over ranks.
  virtual void statistics_of_sums(const at::Tensor& sums, MapGroups groups,
                                  double epsilon,
                                  const StatisticsResult& result) = 0;

  // out = activation(z); out may be y.
  virtual void normalise_and_activate(const NormedMap& map,
                                      const at::Tensor& out) = 0;

  // `dout` may be a slice of the channels of a wider channels-last map.
  virtual void activation_gradient_sums(const NormedMap& map,
                                        const at::Tensor& dout,
                                        const GradientSumsResult& result) = 0;
  // Divides the sums of whole groups by their number of values. Both arguments
  // may be the same tensor.
  virtual void means_of_sums(const at::Tensor& sums, MapGroups groups,
                             const at::Tensor& means) = 0;

  // dy = weight * inverse_deviation * (dz - mean_dz - n * mean_dz_n), where dz
  // is computed again from y and dout. `means` are means over whole groups; an
  // undefined tensor stands for zeros, for fixed statistics. dy may be dout.
  virtual void norm_gradient(const NormedMap& map, const at::Tensor& dout,
                             const at::Tensor& means, const at::Tensor& dy) = 0;

  // --- other operations on maps ---

  // Max pooling of x [N, C, H, W] with stride 1 and odd windows of `window` x
  // `window` cells, at most 15. out is [N, C, H', W]; it lacks the same number
  // of rows above and below, up to window / 2 each. Cells beyond x count as
  // minus infinity. `choices` (bytes, out's shape) is set to the index of each
  // window's largest cell, with cells counted row by row. If several cells are
  // the largest, it is the index that LibTorch chooses on the CPU. `choices` is
  // undefined if it is not wanted.
  virtual void max_pool(const at::Tensor& x, int64_t window,
                        const at::Tensor& out, const at::Tensor& choices) = 0;
  // Computes dx from out's gradient, which may be a slice of the channels of a
  // wider channels-last map. Each cell adds the gradients of its windows in
  // order.
  virtual void max_pool_gradient(const at::Tensor& dout,
                                 const at::Tensor& choices, int64_t window,
                                 const at::Tensor& dx) = 0;

  // Converts loaded images [N, H, W, C], uint8 or uint16, to the network's
  // input [N, C, H, W] of any map type: value / largest level, in float32.
  virtual void scale_images(const at::Tensor& images,
                            const at::Tensor& input) = 0;
  // Renders images [n, rows, W, bands] from n packed samples (packed_sample.h);
  // sample i begins at byte starts[i] of `region`. The bytes equal those that
  // the CPU renders. REQUIRES: dense uint8 or uint16 tensors on one device, and
  // samples packed from tiles of that type.
  virtual void render_samples(const at::Tensor& region,
                              std::span<const int64_t> starts,
                              const at::Tensor& images) = 0;

  // --- copies ---

  // Copies a CPU tensor without gaps to a device, with its strides: weights may
  // be in channels-last memory. The host tensor may be released at once.
  virtual at::Tensor upload(const at::Tensor& host,
                            const c10::Device& device) = 0;
  // Copies a contiguous CPU tensor into a device tensor of the same sizes and
  // type, without allocating device memory.
  virtual void upload_into(const at::Tensor& host,
                           const at::Tensor& target) = 0;

  // --- loss (loss_call.h) ---

  // Computes the items and their sum over all levels
  // (worker/loss/level_loss.h).
  virtual void loss(const LossCall& call) = 0;
  // Computes the gradients of all heads; writes every element.
  virtual void loss_gradient(const LossCall& call) = 0;

  // --- assignment and loss of heads without anchors (place_loss_call.h) ---

  // Four passes, in this order.
  virtual void best_places(const PlaceLossCall& call) = 0;
  virtual void place_owners(const PlaceLossCall& call) = 0;
  virtual void place_loss(const PlaceLossCall& call) = 0;
  // Computes the gradients of all maps; writes every element.
  virtual void place_loss_gradient(const PlaceLossCall& call) = 0;

  // --- the end of a step (commit_numbers.h) ---

  // Divides a flat buffer of `size` elements into pieces, on which squares()
  // and commit() work: bytes [pieces, kPieceBytes] on the device. Elements
  // outside all ranges are only averaged (EMA). REQUIRES: ranges in ascending
  // order without overlap, inside [0, size).
  virtual at::Tensor make_pieces(const c10::Device& device,
                                 std::span<const FlatBufferRange> ranges,
                                 int64_t size) = 0;
  // Writes the sum of the squared gradients of each piece to `partial`, double.
  virtual void squares(const FlatBuffers& buffers, const CommitPlace& place,
                       const at::Tensor& partial) = 0;
  // Decides whether the step counts, from the partial sums of all buffers and
  // the step's items, and writes the outcome.
  virtual void decide(const at::Tensor& partial, const CommitPlace& place) = 0;
  // Accumulates and clips gradients and updates parameters and their EMA, if
  // the outcome says that the step counts.
  virtual void commit(const FlatBuffers& buffers, const CommitPlace& place) = 0;
  // Updates the running statistics if the outcome says that the step counts.
  virtual void move_running(const RunningStatistics& statistics,
                            const CommitPlace& place) = 0;
};

}  // namespace headroom::kernels
