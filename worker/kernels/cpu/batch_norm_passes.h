// batch_norm_passes: the passes over memory of batch norm and activation.
//
// Training needs four: sums of y; normalise and activate; backward through the
// activation, which is derived again from y, with sums; backward through the
// normalisation.
//
// `pixels` counts rows of `channels` neighbouring elements (channels-last).
// Results do not depend on the number of threads: pixels are cut into fixed
// chunks and the chunks' sums are added in order.
// T is float, double, c10::BFloat16 or c10::Half, the last two computed with in
// float; sums are in double.
//
// Functions are reentrant and use ATen's thread pool.
#pragma once

#include <cstdint>
#include <span>

#include "configs/layers/layer_program.h"

namespace headroom::kernels {

// z = (y - mean) * inverse_deviation * weight + bias, per channel; then the
// activation, of all of them.
struct ChannelNorm {
  std::span<const double> mean;
  std::span<const double> inverse_deviation;
  std::span<const double> weight;
  std::span<const double> bias;
  layers::ActivationFunction activation = {};

  int64_t channels() const { return static_cast<int64_t>(mean.size()); }
  double scale(int64_t c) const { return inverse_deviation[c] * weight[c]; }
};

// Fills `sum` and `sum_squares` with those of y over the pixels. Squares are
// summed around a value of each channel, so that the variance of channels with
// a large mean survives until it is in double.
template <typename T>
void channel_sums(const T* y, int64_t pixels, std::span<double> sum,
                  std::span<double> sum_squares);

// out = activation(z)
template <typename T>
void batch_norm_activation(const T* y, T* out, int64_t pixels,
                           const ChannelNorm& norm);

// dz = dy * activation'(z). With n = (y - mean) * inverse_deviation: fills
// `sum` with the sums of dz and `sum_normalised` with those of dz * n. Pixels
// of dy are `dy_stride` elements apart: more than the channels where dy is a
// slice of a wider map's gradient, as behind a concatenation. dz may be dy.
template <typename T>
void batch_norm_activation_backward(const T* y, const T* dy, int64_t dy_stride,
                                    T* dz, int64_t pixels,
                                    const ChannelNorm& norm,
                                    std::span<double> sum,
                                    std::span<double> sum_normalised);

// Turns dz into the gradient of y:
//   weight * inverse_deviation * (dz - mean_dz - n * mean_dz_normalised),
// where the means are over the whole group, or 0 for fixed statistics.
template <typename T>
void batch_norm_backward(const T* y, T* dz, int64_t pixels,
                         const ChannelNorm& norm,
                         std::span<const double> mean_dz,
                         std::span<const double> mean_dz_normalised);

}  // namespace headroom::kernels
