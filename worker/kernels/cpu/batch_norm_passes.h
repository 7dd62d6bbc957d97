// batch_norm_passes: the passes over memory of batch norm and activation.
//
// Training needs four passes: the sums of y; normalise and activate; backward
// through the activation (computed again from y) with its sums; backward
// through the normalisation.
//
// `pixels` counts groups of `channels` adjacent elements (channels-last).
// Results do not depend on the number of threads: pixels are divided into fixed
// chunks, and the sums of the chunks are added in order. T is float, double,
// c10::BFloat16 or c10::Half; the last two are computed in float. Sums are in
// double.
//
// Functions are reentrant and use ATen's thread pool.
#pragma once

#include <cstdint>
#include <span>

#include "configs/layers/activation.h"

namespace headroom::kernels {

// Per channel: activation((y - mean) * inverse_deviation * weight + bias).
struct ChannelNorm {
  std::span<const double> mean;
  std::span<const double> inverse_deviation;
  std::span<const double> weight;
  std::span<const double> bias;
  layers::ActivationFunction activation = {};

  int64_t channels() const { return static_cast<int64_t>(mean.size()); }
  double scale(int64_t c) const { return inverse_deviation[c] * weight[c]; }
};

// Sets `sum` and `sum_squares` to the sums of y and of its square over the
// pixels. Squares are summed relative to a value near the mean of each channel,
// so that the variance of channels with a large mean keeps its precision.
template <typename T>
void channel_sums(const T* y, int64_t pixels, std::span<double> sum,
                  std::span<double> sum_squares);

// out = activation(z)
template <typename T>
void batch_norm_activation(const T* y, T* out, int64_t pixels,
                           const ChannelNorm& norm);

// dz = dy * activation'(z). With n = (y - mean) * inverse_deviation, sets `sum`
// to the sums of dz and `sum_normalised` to the sums of dz * n. `dy_stride` is
// the distance of two pixels of dy in elements; it exceeds the channels if dy
// is a slice of a wider map's gradient, as after a concatenation. dz may be dy.
template <typename T>
void batch_norm_activation_backward(const T* y, const T* dy, int64_t dy_stride,
                                    T* dz, int64_t pixels,
                                    const ChannelNorm& norm,
                                    std::span<double> sum,
                                    std::span<double> sum_normalised);

// Replaces dz by the gradient of y: weight * inverse_deviation * (dz - mean_dz
// - n * mean_dz_normalised). The means are of the whole group, or 0 for fixed
// statistics.
template <typename T>
void batch_norm_backward(const T* y, T* dz, int64_t pixels,
                         const ChannelNorm& norm,
                         std::span<const double> mean_dz,
                         std::span<const double> mean_dz_normalised);

}  // namespace headroom::kernels
