#include "worker/kernels/cpu/batch_norm_passes.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "worker/kernels/cpu/vector_kernels.h"

namespace headroom::kernels {
namespace {

// Maps a tensor's element type to the vector kernels' types: Element, the Value
// that is computed with, and StoredOf, the type in memory.
template <typename T>
struct ElementFor {
  using Type = T;
};
template <>
struct ElementFor<c10::BFloat16> {
  using Type = BFloat16Element;
};
template <>
struct ElementFor<c10::Half> {
  using Type = Float16Element;
};
template <typename T>
using Element = typename ElementFor<T>::Type;
template <typename T>
using Value = ValueOf<Element<T>>;

template <typename T>
const StoredOf<Element<T>>* stored(const T* data) {
  return reinterpret_cast<const StoredOf<Element<T>>*>(data);
}
template <typename T>
StoredOf<Element<T>>* stored(T* data) {
  return reinterpret_cast<StoredOf<Element<T>>*>(data);
}

// Elements per chunk. Two or three arrays of this size fit in a second-level
// cache, and the largest maps still give every thread many chunks.
constexpr int64_t kChunkElements = 1 << 16;

// The number of elements that are gathered at a time.
constexpr int64_t kTileElements = 1 << 12;

// Views pixels as rows of the vector kernels: `pixels_per_row` pixels each. The
// remaining pixels are copied into a padded last row.
struct RowView {
  int64_t channels;
  int64_t pixels;
  int64_t pixels_per_row;

  RowView(int64_t channels, int64_t pixels, int64_t block)
      : channels(channels),
        pixels(pixels),
        pixels_per_row(block / std::gcd(channels, block)) {}

  int64_t period() const { return channels * pixels_per_row; }
  int64_t whole_rows() const { return pixels / pixels_per_row; }
  int64_t rest_elements() const { return pixels % pixels_per_row * channels; }
  int64_t rows_per_chunk() const {
    return std::max<int64_t>(1, kChunkElements / period());
  }
  int64_t chunks() const {
    return (whole_rows() + rows_per_chunk() - 1) / rows_per_chunk();
  }
};

// Repeats a value per channel for each column of a row.
template <typename T, typename OfChannel>
std::vector<T> columns(const RowView& view, const OfChannel& value) {
  std::vector<T> result(view.period());
  for (int64_t c = 0; c < view.channels; ++c) result[c] = T(value(c));
  for (int64_t i = view.channels; i < view.period(); ++i)
    result[i] = result[i - view.channels];
  return result;
}

// The rounding error of the mean in T is added to the bias, so that channels
// whose mean is large against their deviation keep their precision.
template <typename T>
struct NormColumns {
  std::vector<T> mean, scale, bias;

  NormColumns(const RowView& view, const ChannelNorm& norm)
      : mean(columns<T>(view, [&](int64_t c) { return norm.mean[c]; })),
        scale(columns<T>(view, [&](int64_t c) { return norm.scale(c); })),
        bias(columns<T>(view, [&](int64_t c) {
          return norm.bias[c] + lost(norm, c) * norm.scale(c);
        })) {}

  static double lost(const ChannelNorm& norm, int64_t c) {
    return static_cast<double>(static_cast<T>(norm.mean[c])) - norm.mean[c];
  }
};

// Copies the remaining pixels into one row; `padding` fills its other columns.
template <typename T>
std::vector<T> padded_rest(const RowView& view, const T* data,
                           const std::vector<Value<T>>& padding) {
  std::vector<T> row(padding.begin(), padding.end());
  std::copy_n(data + view.whole_rows() * view.period(), view.rest_elements(),
              row.begin());
  return row;
}

// Copies pixels that are `stride` elements apart into contiguous memory.
template <typename T>
void gather_pixels(const T* from, int64_t stride, int64_t channels,
                   int64_t pixels, T* to) {
  // The size of a piece is a compile-time constant, because a memcpy call per
  // pixel would cost more than the copy.
  constexpr int64_t kPiece = 64 / sizeof(T);
  for (int64_t i = 0; i < pixels; ++i, from += stride, to += channels) {
    int64_t c = 0;
    for (; c + kPiece <= channels; c += kPiece)
      std::memcpy(to + c, from + c, kPiece * sizeof(T));
    std::copy_n(from + c, channels - c, to + c);
  }
}

// Runs body(first_row, rows, chunk) for every chunk of whole rows.
template <typename Body>
void for_each_chunk(const RowView& view, const Body& body) {
  at::parallel_for(0, view.chunks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t row = chunk * view.rows_per_chunk();
      body(row, std::min(view.rows_per_chunk(), view.whole_rows() - row),
           chunk);
    }
  });
}

// Two sums per column, for every chunk and for the remaining pixels.
class ColumnSums {
 public:
  explicit ColumnSums(const RowView& view)
      : view_(view), values_((view.chunks() + 1) * 2 * view.period()) {}

  double* first(int64_t chunk) {
    return values_.data() + chunk * 2 * view_.period();
  }
  double* second(int64_t chunk) { return first(chunk) + view_.period(); }

  void add_up(std::span<double> first_sums, std::span<double> second_sums) {
    std::fill(first_sums.begin(), first_sums.end(), 0.0);
    std::fill(second_sums.begin(), second_sums.end(), 0.0);
    for (int64_t chunk = 0; chunk <= view_.chunks(); ++chunk) {
      for (int64_t i = 0; i < view_.period(); i += view_.channels) {
        for (int64_t c = 0; c < view_.channels; ++c) {
          first_sums[c] += first(chunk)[i + c];
          second_sums[c] += second(chunk)[i + c];
        }
      }
    }
  }

 private:
  RowView view_;
  std::vector<double> values_;
};

}  // namespace

template <typename T>
void channel_sums(const T* y, int64_t pixels, std::span<double> sum,
                  std::span<double> sum_squares) {
  std::fill(sum.begin(), sum.end(), 0.0);
  std::fill(sum_squares.begin(), sum_squares.end(), 0.0);
  if (pixels == 0) return;
  const auto& kernels = vector_kernels<Element<T>>();
  const RowView view(sum.size(), pixels, kernels.block);
  // The first pixel serves as the centre; any value within some deviations of
  // the mean would do.
  const std::vector<Value<T>> shift =
      columns<Value<T>>(view, [&](int64_t c) { return y[c]; });
  ColumnSums sums(view);
  for_each_chunk(view, [&](int64_t row, int64_t rows, int64_t chunk) {
    kernels.sums(stored(y + row * view.period()), rows, view.period(),
                 shift.data(), sums.first(chunk), sums.second(chunk));
  });
  if (view.rest_elements() > 0) {
    const std::vector<T> rest = padded_rest(view, y, shift);
    kernels.sums(stored(rest.data()), 1, view.period(), shift.data(),
                 sums.first(view.chunks()), sums.second(view.chunks()));
  }
  sums.add_up(sum, sum_squares);
  const double n = static_cast<double>(pixels);
  for (int64_t c = 0; c < view.channels; ++c) {
    const double centre = shift[c];
    sum_squares[c] += centre * (2 * sum[c] + n * centre);
    sum[c] += n * centre;
  }
}

template <typename T>
void batch_norm_activation(const T* y, T* out, int64_t pixels,
                           const ChannelNorm& norm) {
  const auto& kernels = vector_kernels<Element<T>>(norm.activation.kind);
  const auto slope = static_cast<Value<T>>(norm.activation.slope);
  const RowView view(norm.channels(), pixels, kernels.block);
  const NormColumns<Value<T>> c(view, norm);
  for_each_chunk(view, [&](int64_t row, int64_t rows, int64_t) {
    const int64_t at = row * view.period();
    kernels.forward(stored(y + at), stored(out + at), rows, view.period(),
                    c.mean.data(), c.scale.data(), c.bias.data(), slope);
  });
  if (view.rest_elements() > 0) {
    std::vector<T> rest = padded_rest(view, y, c.mean);
    kernels.forward(stored(rest.data()), stored(rest.data()), 1, view.period(),
                    c.mean.data(), c.scale.data(), c.bias.data(), slope);
    std::copy_n(rest.begin(), view.rest_elements(),
                out + view.whole_rows() * view.period());
  }
}

template <typename T>
void batch_norm_activation_backward(const T* y, const T* dy, int64_t dy_stride,
                                    T* dz, int64_t pixels,
                                    const ChannelNorm& norm,
                                    std::span<double> sum,
                                    std::span<double> sum_normalised) {
  const auto& kernels = vector_kernels<Element<T>>(norm.activation.kind);
  const auto slope = static_cast<Value<T>>(norm.activation.slope);
  const RowView view(norm.channels(), pixels, kernels.block);
  const NormColumns<Value<T>> c(view, norm);
  ColumnSums sums(view);
  const auto pass = [&](const T* y_rows, const T* dy_rows, T* dz_rows,
                        int64_t rows, int64_t chunk) {
    kernels.backward_activation(stored(y_rows), stored(dy_rows),
                                stored(dz_rows), rows, view.period(),
                                c.mean.data(), c.scale.data(), c.bias.data(),
                                slope, sums.first(chunk), sums.second(chunk));
  };
  for_each_chunk(view, [&](int64_t row, int64_t rows, int64_t chunk) {
    const int64_t at = row * view.period();
    if (dy_stride == view.channels) {
      pass(y + at, dy + at, dz + at, rows, chunk);
      return;
    }
    // Gather into dz, one tile at a time, so that the tile is in the
    // first-level cache for the pass.
    const int64_t tile = std::max<int64_t>(1, kTileElements / view.period());
    for (int64_t i = row; i < row + rows; i += tile) {
      const int64_t tile_rows = std::min(tile, row + rows - i);
      T* target = dz + i * view.period();
      gather_pixels(dy + i * view.pixels_per_row * dy_stride, dy_stride,
                    view.channels, tile_rows * view.pixels_per_row, target);
      pass(y + i * view.period(), target, target, tile_rows, chunk);
    }
  });
  if (view.rest_elements() > 0) {
    const std::vector<T> y_rest = padded_rest(view, y, c.mean);
    std::vector<T> rest(view.period());
    const int64_t done = view.whole_rows() * view.pixels_per_row;
    gather_pixels(dy + done * dy_stride, dy_stride, view.channels,
                  pixels - done, rest.data());
    pass(y_rest.data(), rest.data(), rest.data(), 1, view.chunks());
    std::copy_n(rest.begin(), view.rest_elements(), dz + done * view.channels);
  }
  sums.add_up(sum, sum_normalised);
  for (int64_t i = 0; i < view.channels; ++i) {
    const double sum_centred =
        sum_normalised[i] + NormColumns<Value<T>>::lost(norm, i) * sum[i];
    sum_normalised[i] = sum_centred * norm.inverse_deviation[i];
  }
}

template <typename T>
void batch_norm_backward(const T* y, T* dz, int64_t pixels,
                         const ChannelNorm& norm,
                         std::span<const double> mean_dz,
                         std::span<const double> mean_dz_normalised) {
  const auto& kernels = vector_kernels<Element<T>>();
  const RowView view(norm.channels(), pixels, kernels.block);
  const NormColumns<Value<T>> c(view, norm);
  const auto slope_of = [&](int64_t i) {
    return norm.scale(i) * norm.inverse_deviation[i] * mean_dz_normalised[i];
  };
  const std::vector<Value<T>> slope = columns<Value<T>>(view, slope_of);
  const std::vector<Value<T>> offset = columns<Value<T>>(view, [&](int64_t i) {
    return norm.scale(i) * mean_dz[i] +
           NormColumns<Value<T>>::lost(norm, i) * slope_of(i);
  });
  for_each_chunk(view, [&](int64_t row, int64_t rows, int64_t) {
    const int64_t at = row * view.period();
    kernels.backward_norm(stored(y + at), stored(dz + at), rows, view.period(),
                          c.mean.data(), c.scale.data(), offset.data(),
                          slope.data());
  });
  if (view.rest_elements() > 0) {
    const std::vector<T> y_rest = padded_rest(view, y, c.mean);
    std::vector<T> rest =
        padded_rest<T>(view, dz, std::vector<Value<T>>(view.period()));
    kernels.backward_norm(stored(y_rest.data()), stored(rest.data()), 1,
                          view.period(), c.mean.data(), c.scale.data(),
                          offset.data(), slope.data());
    std::copy_n(rest.begin(), view.rest_elements(),
                dz + view.whole_rows() * view.period());
  }
}

#define HEADROOM_INSTANTIATE(T)                                                \
  template void channel_sums(const T*, int64_t, std::span<double>,             \
                             std::span<double>);                               \
  template void batch_norm_activation(const T*, T*, int64_t,                   \
                                      const ChannelNorm&);                     \
  template void batch_norm_activation_backward(                                \
      const T*, const T*, int64_t, T*, int64_t, const ChannelNorm&,            \
      std::span<double>, std::span<double>);                                   \
  template void batch_norm_backward(const T*, T*, int64_t, const ChannelNorm&, \
                                    std::span<const double>,                   \
                                    std::span<const double>);
HEADROOM_INSTANTIATE(float)
HEADROOM_INSTANTIATE(double)
HEADROOM_INSTANTIATE(c10::BFloat16)
HEADROOM_INSTANTIATE(c10::Half)
#undef HEADROOM_INSTANTIATE

}  // namespace headroom::kernels
