// The parts of the passes of batch norm and activation: how a block finds its
// part of a map, the values per channel that its threads share, and the results
// computed from a map's sums. batch_norm_passes.cu has the passes.
//
// A map is channels-last: pixels of `channels` adjacent elements. Its samples
// form groups, which are ranges of pixels. A block processes a tile of channels
// and a chunk of one group's pixels. Each of its threads processes V adjacent
// channels (16 bytes) of every size_y-th pixel. T is the map's element type and
// A the type of the arithmetic: double if T is double, else float. Sums are in
// A within a block and are added over blocks in double, in the blocks' order,
// so the result has the same bits every time.
//
// Tests run the same code on the CPU (tests/support/host_cuda).
#pragma once

#include <cstdint>
#include <type_traits>

#include "parallel/cuda/kernels/launch.h"
#include "worker/kernels/element_math.h"

namespace headroom::cuda {

inline constexpr int kMapThreads = 256;  // threads per block
inline constexpr int kWarp = 32;
inline constexpr int kMapWarps = kMapThreads / kWarp;
// Minimum number of blocks that a multiprocessor runs at a time.
inline constexpr int kBlocksPerMultiprocessor = 4;
inline constexpr int kVectorBytes = 16;  // width of a load

// Maximum number of thread columns: 128 bytes of a pixel, one cache line.
HEADROOM_HD constexpr int columns_of(int vector) {
  return vector > 1 ? 8 : kWarp;
}

template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T at[V];
};

template <int V, typename T>
HEADROOM_HD Pack<T, V> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}

// BatchNormArguments with typed pointers, and the grid.
template <typename T, typename Activation>
struct BatchNormMap {
  using A = Accumulator<T>;
  const T* y;
  const T* gradient;
  int64_t gradient_stride;
  T* result;
  const double* statistics;
  const A* weight;
  const A* bias;
  const double* means;
  A* partial;  // [groups, chunks, 2, channels]
  PixelGroups groups;
  int64_t channels;
  int tiles, chunks;
  int64_t chunk_pixels;
  Activation activation;
};

// A block's part of a map.
struct BlockPlace {
  int tile, chunk, group;
  int64_t begin, end;  // the pixels [begin, end)
};

template <typename Map>
HEADROOM_HD BlockPlace block_place(const Map& map, unsigned block,
                                   unsigned group) {
  BlockPlace place;
  // Adjacent blocks compute adjacent tiles, so that whole pixels are read.
  const auto tiles = static_cast<unsigned>(map.tiles);
  place.tile = static_cast<int>(block % tiles);
  place.chunk = static_cast<int>(block / tiles);
  place.group = static_cast<int>(group);
  const int64_t end = map.groups.begin[group + 1];
  place.begin = map.groups.begin[group] + place.chunk * map.chunk_pixels;
  place.end = place.begin + map.chunk_pixels;
  if (place.end > end) place.end = end;
  // Groups smaller than the largest have fewer chunks.
  if (place.end < place.begin) place.end = place.begin;
  return place;
}

// One value for each channel of a tile, in a block's shared memory. Every
// thread reads its V values in loads of 16 bytes, without bank conflicts.
template <typename A, int V>
struct TileValues {
  static constexpr int kWide = V * sizeof(A) > kVectorBytes
                                   ? kVectorBytes / sizeof(A)
                                   : V;
  static constexpr int kParts = V / kWide;
  Pack<A, kWide> at[kParts][columns_of(V)];

  HEADROOM_HD void put(int channel, A value) {
    const int own = channel % V;
    at[own / kWide][channel / V].at[own % kWide] = value;
  }
};

template <typename A, int V>
struct TileNorm {
  static constexpr int kWide = TileValues<A, V>::kWide;
  TileValues<A, V> mean, scale, bias;

  HEADROOM_HD void put(int channel, const kernels::NormCoefficients<A>& c) {
    mean.put(channel, c.mean);
    scale.put(channel, c.scale);
    bias.put(channel, c.bias);
  }
};

// The mean, scale and bias of kWide adjacent channels.
template <typename A, int kWide>
struct WideNorm {
  Pack<A, kWide> mean, scale, bias;

  template <int V>
  HEADROOM_HD WideNorm(const TileNorm<A, V>& tile, int part, int column)
      : mean(tile.mean.at[part][column]),
        scale(tile.scale.at[part][column]),
        bias(tile.bias.at[part][column]) {}
  HEADROOM_HD kernels::NormCoefficients<A> of(int i) const {
    return {mean.at[i], scale.at[i], bias.at[i]};
  }
};

// Two sums of V channels in one thread.
template <typename A, int V>
struct ColumnSums {
  A first[V] = {};
  A second[V] = {};
};

// --- results from the sums of one channel of one group -----------------------

// Converts the sums of y - shift and of its square, where shift is the first
// pixel, to the sums of y and of y^2.
template <typename Map>
HEADROOM_HD void finish_value_sums(const Map& map, int group, int64_t channel,
                                   double (&sums)[2]) {
  const int64_t begin = map.groups.begin[group];
  const int64_t pixels = map.groups.begin[group + 1] - begin;
  if (pixels == 0) return;
  const auto shift = static_cast<double>(
      static_cast<typename Map::A>(map.y[begin * map.channels + channel]));
  const auto n = static_cast<double>(pixels);
  sums[1] += shift * (2 * sums[0] + n * shift);
  sums[0] += n * shift;
}

// Converts sums of dz * (y - rounded mean) to sums of dz * n, where n is the
// normalised value (y - mean) / deviation.
template <typename Map>
HEADROOM_HD void finish_gradient_sums(const Map& map, int group,
                                      int64_t channel, double (&sums)[2]) {
  const double* mean = map.statistics + group * 2 * map.channels + channel;
  const auto rounded =
      static_cast<double>(static_cast<typename Map::A>(mean[0]));
  sums[1] = (sums[1] + (rounded - mean[0]) * sums[0]) * mean[map.channels];
}

// Writes the results of one channel. Groups must be passed in order.
class ChannelTargets {
 public:
  HEADROOM_HD ChannelTargets(const SumTargets& to, int64_t channel,
                             int64_t channels)
      : to_(to), channel_(channel), channels_(channels) {
    if (to.running == nullptr) return;
    running_[0] = to.running[channel];
    running_[1] = to.running[channels + channel];
  }

  HEADROOM_HD void take_values(int group, const double (&sums)[2]) {
    put(to_.sums, group, sums[0], sums[1]);
    if (to_.statistics == nullptr) return;
    const double n = to_.values[group];
    const double mean = sums[0] / n;
    const double squares = sums[1] - n * mean * mean;
    // `squares` of a constant channel may round below 0; NaN stays NaN.
    const double centred = squares < 0 ? 0 : squares;
    put(to_.statistics, group, mean, 1 / std::sqrt(centred / n + to_.epsilon));
    if ((to_.counted >> group & 1) == 0) return;
    running_[0] += mean;
    running_[1] += centred / (n - 1);
  }

  HEADROOM_HD void take_gradients(int group, const double (&sums)[2]) {
    put(to_.sums, group, sums[0], sums[1]);
    const double n = to_.values[group];
    put(to_.means, group, sums[0] / n, sums[1] / n);
    gradients_[0] += sums[0];
    gradients_[1] += sums[1];
  }

  HEADROOM_HD void write_running() const {
    if (to_.running == nullptr) return;
    to_.running[channel_] = running_[0];
    to_.running[channels_ + channel_] = running_[1];
  }

  template <typename A>
  HEADROOM_HD void write_gradients() const {
    A* const bias = static_cast<A*>(to_.bias_gradient) + channel_;
    A* const weight = static_cast<A*>(to_.weight_gradient) + channel_;
    const A before[2] = {to_.adds_gradients ? *bias : A(0),
                         to_.adds_gradients ? *weight : A(0)};
    *bias = before[0] + static_cast<A>(gradients_[0]);
    *weight = before[1] + static_cast<A>(gradients_[1]);
  }

 private:
  HEADROOM_HD void put(double* to, int group, double first, double second) {
    if (to == nullptr) return;
    to += group * 2 * channels_ + channel_;
    to[0] = first;
    to[channels_] = second;
  }

  const SumTargets& to_;
  const int64_t channel_, channels_;
  double running_[2] = {};
  double gradients_[2] = {};
};

}  // namespace headroom::cuda
