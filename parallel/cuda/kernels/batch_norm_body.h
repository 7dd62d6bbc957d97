// The passes of batch norm and activation as CUDA's threads
// run them, in plain C++.
//
// The kernels (batch_norm_passes.cu) are these functions with barriers between
// them; a test runs the same text on the CPU, thread after thread, so that
// indices, tails and sums are checked without a GPU.
//
// A map is channels-last: pixels of `channels` neighbouring elements. Its
// samples form groups, which are runs of pixels. A block of threads has x over
// channels, `V` neighbouring ones each, and y over pixels; it works on one
// chunk of one group's pixels, kPixelsPerThread of them in each thread.
// T is the map's element, A what is computed with: float, double for T double.
// Sums stay in A within a block, and are added up in double over blocks, in
// their order: the same bits again.
#pragma once

#include <cstdint>
#include <type_traits>

#include "worker/kernels/element_math.h"

namespace headroom::cuda {

inline constexpr int kPixelsPerThread = 32;
inline constexpr int kMostGroups = 64;  // of one launch

template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, double>, double, float>;

// Group g is pixels [begin[g], begin[g + 1]).
struct PixelGroups {
  int64_t begin[kMostGroups + 1];
  int count;
};

// The arguments of one launch: y [pixels, channels], and what a pass needs.
template <typename T>
struct BatchNormMap {
  using A = Accumulator<T>;
  const T* y;
  const T* gradient;         // of the output; null in forward
  int64_t gradient_stride;   // elements from one of its pixels to the next
  T* result;                 // null where a pass only sums
  const double* statistics;  // [groups, 2, channels]: mean, inverse deviation
  const A* weight;           // [channels]
  const A* bias;
  const double* means;  // [groups, 2, channels]: of dz, of dz * n
  A* partial;           // [groups, chunks, 2, channels]
  PixelGroups groups;
  int64_t channels;
  int64_t chunks;  // of the largest group
  layers::ActivationFunction activation;
};

struct ThreadPlace {
  int x, y;            // in the block
  int size_x, size_y;  // of the block; size_y is a power of two
  int64_t chunk;       // block's
  int tile, group;
};

template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T at[V];
};

template <int V, typename T>
HEADROOM_HD Pack<T, V> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, V>*>(from);
}

template <int V>
HEADROOM_HD int64_t channel_of(const ThreadPlace& place) {
  return (static_cast<int64_t>(place.tile) * place.size_x + place.x) * V;
}

// Two sums of V channels in one thread.
template <typename A, int V>
struct ColumnSums {
  A first[V] = {};
  A second[V] = {};
};

// Calls body(pixel) for this thread's pixels of its block's chunk.
template <typename T, typename Body>
HEADROOM_HD void for_own_pixels(const BatchNormMap<T>& map,
                                const ThreadPlace& place, const Body& body) {
  const int64_t end = map.groups.begin[place.group + 1];
  int64_t pixel = map.groups.begin[place.group] +
                  place.chunk * kPixelsPerThread * place.size_y + place.y;
  for (int i = 0; i < kPixelsPerThread && pixel < end;
       ++i, pixel += place.size_y) {
    body(pixel);
  }
}

template <typename T, int V>
HEADROOM_HD void read_norm(const BatchNormMap<T>& map, int group,
                           int64_t channel,
                           kernels::NormCoefficients<Accumulator<T>>* norm) {
  const double* mean = map.statistics + group * 2 * map.channels + channel;
  for (int v = 0; v < V; ++v) {
    norm[v] = kernels::norm_coefficients<Accumulator<T>>(
        mean[v], mean[map.channels + v], map.weight[channel + v],
        map.bias[channel + v]);
  }
}

// --- the four passes, a thread's part of each --------------------------------

// Sums of y - shift and of its square; shift is the group's first pixel, so
// that the variance of channels with a large mean survives until it is in
// double.
template <typename T, int V>
HEADROOM_HD ColumnSums<Accumulator<T>, V> sum_values(const BatchNormMap<T>& map,
                                                     const ThreadPlace& place) {
  using A = Accumulator<T>;
  ColumnSums<A, V> sums;
  const int64_t channel = channel_of<V>(place);
  const int64_t begin = map.groups.begin[place.group];
  if (channel >= map.channels || begin == map.groups.begin[place.group + 1]) {
    return sums;
  }
  const Pack<T, V> shift = load_pack<V>(map.y + begin * map.channels + channel);
  for_own_pixels(map, place, [&](int64_t pixel) {
    const auto y = load_pack<V>(map.y + pixel * map.channels + channel);
    for (int v = 0; v < V; ++v) {
      const A d = static_cast<A>(y.at[v]) - static_cast<A>(shift.at[v]);
      sums.first[v] += d;
      sums.second[v] += d * d;
    }
  });
  return sums;
}

template <typename T, int V>
HEADROOM_HD void normalise(const BatchNormMap<T>& map,
                           const ThreadPlace& place) {
  using A = Accumulator<T>;
  const int64_t channel = channel_of<V>(place);
  if (channel >= map.channels) return;
  kernels::NormCoefficients<A> norm[V];
  read_norm<T, V>(map, place.group, channel, norm);
  for_own_pixels(map, place, [&](int64_t pixel) {
    const int64_t at = pixel * map.channels + channel;
    const auto y = load_pack<V>(map.y + at);
    Pack<T, V> out;
    for (int v = 0; v < V; ++v) {
      out.at[v] = static_cast<T>(kernels::norm_activation(
          static_cast<A>(y.at[v]), norm[v], map.activation));
    }
    *reinterpret_cast<Pack<T, V>*>(map.result + at) = out;
  });
}

// Sums of dz and of dz * (y - mean). dz is not written: the next pass derives
// it again from what this one reads, which costs less than writing it.
template <typename T, int V>
HEADROOM_HD ColumnSums<Accumulator<T>, V> sum_gradients(
    const BatchNormMap<T>& map, const ThreadPlace& place) {
  using A = Accumulator<T>;
  ColumnSums<A, V> sums;
  const int64_t channel = channel_of<V>(place);
  if (channel >= map.channels) return sums;
  kernels::NormCoefficients<A> norm[V];
  read_norm<T, V>(map, place.group, channel, norm);
  for_own_pixels(map, place, [&](int64_t pixel) {
    const auto y = load_pack<V>(map.y + pixel * map.channels + channel);
    const auto d =
        load_pack<V>(map.gradient + pixel * map.gradient_stride + channel);
    for (int v = 0; v < V; ++v) {
      const A value = static_cast<A>(y.at[v]);
      const A dz = kernels::norm_activation_gradient(
          value, static_cast<A>(d.at[v]), norm[v], map.activation);
      sums.first[v] += dz;
      sums.second[v] += dz * (value - norm[v].mean);
    }
  });
  return sums;
}

// The gradient of y. Where result is gradient each element is read before it
// is written, by one thread.
template <typename T, int V>
HEADROOM_HD void normalise_backward(const BatchNormMap<T>& map,
                                    const ThreadPlace& place) {
  using A = Accumulator<T>;
  const int64_t channel = channel_of<V>(place);
  if (channel >= map.channels) return;
  kernels::NormCoefficients<A> norm[V];
  read_norm<T, V>(map, place.group, channel, norm);
  kernels::NormGradientCoefficients<A> taken[V];
  const int64_t at_group = place.group * 2 * map.channels + channel;
  const double* mean = map.statistics + at_group;
  const double* mean_dz = map.means + at_group;
  for (int v = 0; v < V; ++v) {
    taken[v] = kernels::norm_gradient_coefficients<A>(
        mean[v], mean[map.channels + v], map.weight[channel + v], mean_dz[v],
        mean_dz[map.channels + v]);
  }
  for_own_pixels(map, place, [&](int64_t pixel) {
    const int64_t at = pixel * map.channels + channel;
    const auto y = load_pack<V>(map.y + at);
    const auto d =
        load_pack<V>(map.gradient + pixel * map.gradient_stride + channel);
    Pack<T, V> out;
    for (int v = 0; v < V; ++v) {
      const A value = static_cast<A>(y.at[v]);
      const A dz = kernels::norm_activation_gradient(
          value, static_cast<A>(d.at[v]), norm[v], map.activation);
      out.at[v] =
          static_cast<T>(kernels::norm_gradient(value, dz, norm[v], taken[v]));
    }
    *reinterpret_cast<Pack<T, V>*>(map.result + at) = out;
  });
}

// --- a block's sums, and the blocks' -----------------------------------------

// The block's memory for sums: [size_y, size_x, 2 V].
template <typename A, int V>
HEADROOM_HD A* place_in_block(A* shared, const ThreadPlace& place, int y) {
  return shared + (static_cast<int64_t>(y) * place.size_x + place.x) * 2 * V;
}

template <typename A, int V>
HEADROOM_HD void put_sums(A* shared, const ThreadPlace& place,
                          const ColumnSums<A, V>& sums) {
  A* const own = place_in_block<A, V>(shared, place, place.y);
  for (int v = 0; v < V; ++v) {
    own[v] = sums.first[v];
    own[V + v] = sums.second[v];
  }
}

// Rows [0, half) take over rows [half, 2 half): from half = size_y / 2 to 1,
// with a barrier before each.
template <typename A, int V>
HEADROOM_HD void fold_sums(A* shared, const ThreadPlace& place, int half) {
  if (place.y >= half) return;
  A* const own = place_in_block<A, V>(shared, place, place.y);
  const A* const other = place_in_block<A, V>(shared, place, place.y + half);
  for (int i = 0; i < 2 * V; ++i) own[i] += other[i];
}

template <typename T, int V>
HEADROOM_HD void write_partial(const BatchNormMap<T>& map,
                               const ThreadPlace& place,
                               const Accumulator<T>* shared) {
  const int64_t channel = channel_of<V>(place);
  if (place.y != 0 || channel >= map.channels) return;
  const auto* own = shared + static_cast<int64_t>(place.x) * 2 * V;
  auto* const to = map.partial +
                   (place.group * map.chunks + place.chunk) * 2 * map.channels +
                   channel;
  for (int v = 0; v < V; ++v) {
    to[v] = own[v];
    to[map.channels + v] = own[V + v];
  }
}

// Every `step`-th chunk's sums of one channel from `first` on, in double.
template <typename T>
HEADROOM_HD void add_chunks(const BatchNormMap<T>& map, int group,
                            int64_t channel, int first, int step,
                            double (&sums)[2]) {
  sums[0] = sums[1] = 0;
  for (int64_t chunk = first; chunk < map.chunks; chunk += step) {
    const auto* from =
        map.partial + (group * map.chunks + chunk) * 2 * map.channels + channel;
    sums[0] += static_cast<double>(from[0]);
    sums[1] += static_cast<double>(from[map.channels]);
  }
}

// From sums around the shift to those of y and its square.
template <typename T>
HEADROOM_HD void finish_value_sums(const BatchNormMap<T>& map, int group,
                                   int64_t channel, double (&sums)[2]) {
  const int64_t begin = map.groups.begin[group];
  const int64_t pixels = map.groups.begin[group + 1] - begin;
  if (pixels == 0) return;
  const auto shift = static_cast<double>(
      static_cast<Accumulator<T>>(map.y[begin * map.channels + channel]));
  const auto n = static_cast<double>(pixels);
  sums[1] += shift * (2 * sums[0] + n * shift);
  sums[0] += n * shift;
}

// From sums of dz * (y - rounded mean) to those of dz * n.
template <typename T>
HEADROOM_HD void finish_gradient_sums(const BatchNormMap<T>& map, int group,
                                      int64_t channel, double (&sums)[2]) {
  const double* mean = map.statistics + group * 2 * map.channels + channel;
  const auto rounded =
      static_cast<double>(static_cast<Accumulator<T>>(mean[0]));
  sums[1] = (sums[1] + (rounded - mean[0]) * sums[0]) * mean[map.channels];
}

}  // namespace headroom::cuda
