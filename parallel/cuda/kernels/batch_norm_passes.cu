// Batch norm and activation on a device: four passes over a map.
//
// Their speed is limited by memory bandwidth if enough loads are in flight and
// an element needs few instructions. So several pixels are loaded before any is
// processed, per-channel values are in shared memory instead of registers, the
// kind of activation is known at compile time, and the last block of a sum
// computes the results from it, so that no further kernel runs on a few
// numbers.
//
// Forward reads y twice; backward reads y and the gradient twice. Each
// direction writes one map, once.
#include "parallel/base/units.h"
#include "parallel/cuda/kernels/batch_norm_body.h"
#include "parallel/cuda/kernels/launch_kernel.h"
#include "parallel/cuda/kernels/pixel_loop.h"

namespace headroom::cuda {
namespace {

// Number of pixels that a thread loads before it processes them: four loads of
// 16 bytes in total, from one array or from two.
constexpr int kPixelsAtOnce = 4;
constexpr int kPixelsOfTwo = 2;

// Each thread stores the coefficients of one channel in shared memory.
template <int V, typename Map>
__device__ void share_norm(const Map& map, const BlockPlace& place,
                           TileNorm<typename Map::A, V>& norm) {
  const int own = own_thread();
  const int64_t channel = first_channel<V>(place) + own;
  if (own >= tile_width<V>() || channel >= map.channels) return;
  const double* const mean =
      map.statistics + place.group * 2 * map.channels + channel;
  norm.put(own, kernels::norm_coefficients<typename Map::A>(
                    mean[0], mean[map.channels], map.weight[channel],
                    map.bias[channel]));
}

// --- sums --------------------------------------------------------------------

// Writes the block's sums for each channel of its tile.
template <int V, typename Map>
__device__ void write_partial(const Map& map, const BlockPlace& place,
                              ColumnSums<typename Map::A, V>& sums) {
  __shared__ typename Map::A shared[kMapWarps][2][columns_of(V) * V];
  for (int lanes = kWarp / 2; lanes >= static_cast<int>(blockDim.x);
       lanes /= 2) {
    HEADROOM_UNROLL
    for (int v = 0; v < V; ++v) {
      sums.first[v] += __shfl_xor_sync(0xffffffffu, sums.first[v], lanes);
      sums.second[v] += __shfl_xor_sync(0xffffffffu, sums.second[v], lanes);
    }
  }
  const int own = own_thread();
  if (own % kWarp < static_cast<int>(blockDim.x)) {
    HEADROOM_UNROLL
    for (int v = 0; v < V; ++v) {
      const int channel = static_cast<int>(threadIdx.x) * V + v;
      shared[own / kWarp][0][channel] = sums.first[v];
      shared[own / kWarp][1][channel] = sums.second[v];
    }
  }
  __syncthreads();
  const int width = tile_width<V>();
  if (own >= 2 * width) return;
  const int which = own / width, column = own % width;
  const int64_t channel = first_channel<V>(place) + column;
  if (channel >= map.channels) return;
  typename Map::A total = 0;
  for (int warp = 0; warp < kMapWarps; ++warp) {
    total += shared[warp][which][column];
  }
  const int64_t chunk = int64_t{place.group} * map.chunks + place.chunk;
  map.partial[(chunk * 2 + which) * map.channels + channel] = total;
}

// Returns true in the block that arrives last among the blocks of a tile. All
// other blocks of the tile have then written their sums.
template <typename Map>
__device__ bool is_last_of_tile(const Map& map, const SumTargets& to,
                                const BlockPlace& place) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (own_thread() == 0) {
    const unsigned blocks = static_cast<unsigned>(map.chunks) *
                            static_cast<unsigned>(map.groups.count);
    is_last = atomicAdd(to.arrivals + place.tile, 1u) + 1 == blocks;
    if (is_last) to.arrivals[place.tile] = 0;
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// Adds up the chunks of a tile and computes the results, group by group.
template <bool kOfGradients, int V, typename Map>
__device__ void finish_tile(const Map& map, const SumTargets& to,
                            const BlockPlace& place) {
  using A = typename Map::A;
  constexpr int kWide = TileValues<A, V>::kWide;
  __shared__ double shared[kMapThreads * kWide];  // [rows, 2, width]
  const int width = tile_width<V>();
  // The block has rows x columns threads; each row adds up part of the chunks.
  const int columns = 2 * width / kWide;
  const int rows = kMapThreads / columns;
  const int own = own_thread();
  const int row = own / columns;
  const int which = own % columns / (width / kWide);
  const int column = own % (width / kWide) * kWide;
  const int64_t channel = first_channel<V>(place) + column;
  const int64_t own_channel = first_channel<V>(place) + own;
  const bool finishes = own < width && own_channel < map.channels;
  ChannelTargets target(to, finishes ? own_channel : 0, map.channels);
  for (int group = 0; group < map.groups.count; ++group) {
    double sums[kWide] = {};
    if (channel < map.channels) {
      const A* from = map.partial +
                      (int64_t{group} * map.chunks * 2 + which) * map.channels +
                      channel;
      HEADROOM_UNROLL_4
      for (int chunk = row; chunk < map.chunks; chunk += rows) {
        const auto part =
            load_pack<kWide>(from + int64_t{chunk} * 2 * map.channels);
        for (int i = 0; i < kWide; ++i) sums[i] += double{part.at[i]};
      }
    }
    for (int i = 0; i < kWide; ++i) {
      shared[(row * 2 + which) * width + column + i] = sums[i];
    }
    __syncthreads();
    if (finishes) {
      double total[2] = {};
      for (int r = 0; r < rows; ++r) {
        total[0] += shared[r * 2 * width + own];
        total[1] += shared[(r * 2 + 1) * width + own];
      }
      if constexpr (kOfGradients) {
        finish_gradient_sums(map, group, own_channel, total);
        target.take_gradients(group, total);
      } else {
        finish_value_sums(map, group, own_channel, total);
        target.take_values(group, total);
      }
    }
    __syncthreads();
  }
  if (!finishes) return;
  if constexpr (kOfGradients) {
    target.template write_gradients<A>();
  } else {
    target.write_running();
  }
}

// Sums of y - shift and of its square. shift is the group's first pixel, so
// that channels with a large mean keep the precision of their variance.
template <typename T, int V, typename Map>
__global__ void __launch_bounds__(kMapThreads, kBlocksPerMultiprocessor)
    sum_values(const Map map, const SumTargets to) {
  using A = typename Map::A;
  const BlockPlace place = block_place(map, blockIdx.x, blockIdx.y);
  const int64_t channel =
      first_channel<V>(place) + static_cast<int64_t>(threadIdx.x) * V;
  ColumnSums<A, V> sums;
  if (channel < map.channels && place.begin < place.end) {
    const auto shift = load_pack<V>(
        map.y + map.groups.begin[place.group] * map.channels + channel);
    PixelPointer<kPixelsAtOnce, V, const T> from(map.y, map.channels, place);
    for_own_pixels<kPixelsAtOnce>(place, [&](int left, auto all) {
      Pack<T, V> values[kPixelsAtOnce];
      from.load(left, all, shift, values);
      from.advance();
      HEADROOM_UNROLL
      for (int v = 0; v < V; ++v) {
        HEADROOM_UNROLL
        for (int i = 0; i < kPixelsAtOnce; ++i) {
          const A d =
              static_cast<A>(values[i].at[v]) - static_cast<A>(shift.at[v]);
          sums.first[v] += d;
          sums.second[v] += d * d;
        }
      }
    });
  }
  write_partial<V>(map, place, sums);
  if (is_last_of_tile(map, to, place)) finish_tile<false, V>(map, to, place);
}

// Sums of dz and of dz * (y - mean). dz is not written: the next pass computes
// it again from the data it reads anyway, which costs less than writing it.
template <typename T, int V, typename Map>
__global__ void __launch_bounds__(kMapThreads, kBlocksPerMultiprocessor)
    sum_gradients(const Map map, const SumTargets to) {
  using A = typename Map::A;
  constexpr int kWide = TileNorm<A, V>::kWide;
  __shared__ TileNorm<A, V> norm;
  const BlockPlace place = block_place(map, blockIdx.x, blockIdx.y);
  share_norm<V>(map, place, norm);
  __syncthreads();
  const int64_t channel =
      first_channel<V>(place) + static_cast<int64_t>(threadIdx.x) * V;
  ColumnSums<A, V> sums;
  if (channel < map.channels) {
    PixelPointer<kPixelsOfTwo, V, const T> from(map.y, map.channels, place);
    PixelPointer<kPixelsOfTwo, V, const T> gradient(map.gradient,
                                                    map.gradient_stride, place);
    for_own_pixels<kPixelsOfTwo>(place, [&](int left, auto all) {
      Pack<T, V> y[kPixelsOfTwo], d[kPixelsOfTwo];
      from.load(left, all, {}, y);
      gradient.load(left, all, {}, d);
      from.advance();
      gradient.advance();
      const int column = static_cast<int>(threadIdx.x) + zero_anew();
      HEADROOM_UNROLL
      for (int part = 0; part < V / kWide; ++part) {
        const WideNorm<A, kWide> own(norm, part, column);
        HEADROOM_UNROLL
        for (int w = 0; w < kWide; ++w) {
          const int v = part * kWide + w;
          const kernels::NormCoefficients<A> c = own.of(w);
          HEADROOM_UNROLL
          for (int i = 0; i < kPixelsOfTwo; ++i) {
            const A value = static_cast<A>(y[i].at[v]);
            const A dz = kernels::norm_activation_gradient(
                value, static_cast<A>(d[i].at[v]), c, map.activation);
            sums.first[v] += dz;
            sums.second[v] += dz * (value - c.mean);
          }
        }
      }
    });
  }
  write_partial<V>(map, place, sums);
  if (is_last_of_tile(map, to, place)) finish_tile<true, V>(map, to, place);
}

// --- maps --------------------------------------------------------------------

template <typename T, int V, typename Map>
__global__ void __launch_bounds__(kMapThreads, kBlocksPerMultiprocessor)
    normalise(const Map map) {
  using A = typename Map::A;
  constexpr int kWide = TileNorm<A, V>::kWide;
  __shared__ TileNorm<A, V> norm;
  const BlockPlace place = block_place(map, blockIdx.x, blockIdx.y);
  share_norm<V>(map, place, norm);
  __syncthreads();
  const int64_t channel =
      first_channel<V>(place) + static_cast<int64_t>(threadIdx.x) * V;
  if (channel >= map.channels) return;
  PixelPointer<kPixelsAtOnce, V, const T> from(map.y, map.channels, place);
  PixelPointer<kPixelsAtOnce, V, T> to(map.result, map.channels, place);
  for_own_pixels<kPixelsAtOnce>(place, [&](int left, auto all) {
    Pack<T, V> values[kPixelsAtOnce];
    from.load(left, all, {}, values);
    from.advance();
    const int column = static_cast<int>(threadIdx.x) + zero_anew();
    HEADROOM_UNROLL
    for (int part = 0; part < V / kWide; ++part) {
      const WideNorm<A, kWide> own(norm, part, column);
      HEADROOM_UNROLL
      for (int w = 0; w < kWide; ++w) {
        const int v = part * kWide + w;
        HEADROOM_UNROLL
        for (int i = 0; i < kPixelsAtOnce; ++i) {
          values[i].at[v] = static_cast<T>(kernels::norm_activation(
              static_cast<A>(values[i].at[v]), own.of(w), map.activation));
        }
      }
    }
    to.store(left, all, values);
    to.advance();
  });
}

// The contribution of the statistics to the gradient of each value.
template <typename A, int V>
struct TileFeedback {
  TileValues<A, V> offset, slope;
};

template <int V, typename Map>
__device__ void share_feedback(const Map& map, const BlockPlace& place,
                               TileFeedback<typename Map::A, V>& feedback) {
  const int own = own_thread();
  const int64_t channel = first_channel<V>(place) + own;
  if (own >= tile_width<V>() || channel >= map.channels) return;
  const int64_t at = place.group * 2 * map.channels + channel;
  const double* const mean = map.statistics + at;
  const double* const mean_dz = map.means == nullptr ? nullptr : map.means + at;
  const auto c = kernels::norm_gradient_coefficients<typename Map::A>(
      mean[0], mean[map.channels], map.weight[channel],
      mean_dz == nullptr ? 0 : mean_dz[0],
      mean_dz == nullptr ? 0 : mean_dz[map.channels]);
  feedback.offset.put(own, c.offset);
  feedback.slope.put(own, c.slope);
}

// The gradient of y. If result and gradient are the same memory, each element
// is read before it is written, by the same thread.
template <typename T, int V, typename Map>
__global__ void __launch_bounds__(kMapThreads, kBlocksPerMultiprocessor)
    normalise_backward(const Map map) {
  using A = typename Map::A;
  constexpr int kWide = TileNorm<A, V>::kWide;
  __shared__ TileNorm<A, V> norm;
  __shared__ TileFeedback<A, V> feedback;
  const BlockPlace place = block_place(map, blockIdx.x, blockIdx.y);
  share_norm<V>(map, place, norm);
  share_feedback<V>(map, place, feedback);
  __syncthreads();
  const int64_t channel =
      first_channel<V>(place) + static_cast<int64_t>(threadIdx.x) * V;
  if (channel >= map.channels) return;
  PixelPointer<kPixelsOfTwo, V, const T> from(map.y, map.channels, place);
  PixelPointer<kPixelsOfTwo, V, const T> gradient(map.gradient,
                                                  map.gradient_stride, place);
  PixelPointer<kPixelsOfTwo, V, T> to(map.result, map.channels, place);
  for_own_pixels<kPixelsOfTwo>(place, [&](int left, auto all) {
    Pack<T, V> y[kPixelsOfTwo], d[kPixelsOfTwo];
    from.load(left, all, {}, y);
    gradient.load(left, all, {}, d);
    from.advance();
    gradient.advance();
    const int column = static_cast<int>(threadIdx.x) + zero_anew();
    HEADROOM_UNROLL
    for (int part = 0; part < V / kWide; ++part) {
      const WideNorm<A, kWide> own(norm, part, column);
      const Pack<A, kWide> offset = feedback.offset.at[part][column];
      const Pack<A, kWide> slope = feedback.slope.at[part][column];
      HEADROOM_UNROLL
      for (int w = 0; w < kWide; ++w) {
        const int v = part * kWide + w;
        const kernels::NormCoefficients<A> c = own.of(w);
        HEADROOM_UNROLL
        for (int i = 0; i < kPixelsOfTwo; ++i) {
          const A value = static_cast<A>(y[i].at[v]);
          const A dz = kernels::norm_activation_gradient(
              value, static_cast<A>(d[i].at[v]), c, map.activation);
          d[i].at[v] = static_cast<T>(kernels::norm_gradient<A>(
              value, dz, c, {offset.at[w], slope.at[w]}));
        }
      }
    }
    to.store(left, all, d);
    to.advance();
  });
}

// Runs one thread per channel, which is enough for the few sums.
__global__ void use_sums(const double* sums, const SumTargets to, int groups,
                         int64_t channels) {
  const int64_t channel =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (channel >= channels) return;
  ChannelTargets target(to, channel, channels);
  for (int group = 0; group < groups; ++group) {
    const double* const from = sums + group * 2 * channels + channel;
    const double own[2] = {from[0], from[channels]};
    if (to.means != nullptr) {
      target.take_gradients(group, own);
    } else {
      target.take_values(group, own);
    }
  }
  target.write_running();
}

// --- launches ----------------------------------------------------------------

enum class Pass { kValueSums, kNormalise, kGradientSums, kNormGradient };

constexpr bool sums(Pass pass) {
  return pass == Pass::kValueSums || pass == Pass::kGradientSums;
}

template <typename T, typename Activation>
BatchNormMap<T, Activation> typed_map(const BatchNormArguments& a,
                                      const MapGrid& grid,
                                      const Activation& activation) {
  using A = Accumulator<T>;
  BatchNormMap<T, Activation> map;
  map.y = static_cast<const T*>(a.y);
  map.gradient = static_cast<const T*>(a.gradient);
  map.gradient_stride = a.gradient_stride;
  map.result = static_cast<T*>(a.result);
  map.statistics = a.statistics;
  map.weight = static_cast<const A*>(a.weight);
  map.bias = static_cast<const A*>(a.bias);
  map.means = a.means;
  map.partial = static_cast<A*>(a.partial);
  map.groups = a.groups;
  map.channels = a.channels;
  map.tiles = static_cast<int>(grid.tiles);
  map.chunks = static_cast<int>(grid.chunks);
  map.chunk_pixels = grid.chunk_pixels;
  map.activation = activation;
  return map;
}

template <Pass kPass, typename T, int V, typename Activation>
cudaError_t launch(const BatchNormArguments& a, const SumTargets* to,
                   const MapGrid& grid, const Activation& activation,
                   cudaStream_t stream) {
  using Map = BatchNormMap<T, Activation>;
  const Map map = typed_map<T>(a, grid, activation);
  const dim3 blocks(static_cast<unsigned>(grid.tiles * grid.chunks),
                    static_cast<unsigned>(a.groups.count));
  const dim3 threads(static_cast<unsigned>(grid.size_x),
                     static_cast<unsigned>(grid.size_y));
  if constexpr (kPass == Pass::kValueSums) {
    return launch_kernel(sum_values<T, V, Map>, blocks, threads, stream, map,
                         *to);
  } else if constexpr (kPass == Pass::kGradientSums) {
    return launch_kernel(sum_gradients<T, V, Map>, blocks, threads, stream, map,
                         *to);
  } else if constexpr (kPass == Pass::kNormalise) {
    return launch_kernel(normalise<T, V, Map>, blocks, threads, stream, map);
  } else {
    return launch_kernel(normalise_backward<T, V, Map>, blocks, threads, stream,
                         map);
  }
}

// For speed, the variants for whole vectors are compiled for each activation,
// except those for double.
template <Pass kPass, typename T>
cudaError_t launch_typed(const BatchNormArguments& a, const SumTargets* to,
                         cudaStream_t stream) {
  constexpr int kWide = kVectorBytes / sizeof(T);
  const MapGrid grid = map_grid(a, sums(kPass));
  if (sums(kPass) && grid.tiles > kMostTiles) return cudaErrorInvalidValue;
  if (grid.vector == 1) {
    return launch<kPass, T, 1>(a, to, grid, a.activation, stream);
  }
  if constexpr (kPass == Pass::kValueSums || std::is_same_v<T, double>) {
    return launch<kPass, T, kWide>(a, to, grid, a.activation, stream);
  } else {
    return kernels::with_known_activation(
        a.activation, [&](const auto& activation) {
          return launch<kPass, T, kWide>(a, to, grid, activation, stream);
        });
  }
}

template <Pass kPass>
int launch_any(const BatchNormArguments& arguments, const SumTargets* to,
               void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  switch (arguments.type) {
    case ElementType::kFloat64:
      return launch_typed<kPass, double>(arguments, to, on);
    case ElementType::kFloat32:
      return launch_typed<kPass, float>(arguments, to, on);
    case ElementType::kBFloat16:
      return launch_typed<kPass, __nv_bfloat16>(arguments, to, on);
    case ElementType::kFloat16:
      return launch_typed<kPass, __half>(arguments, to, on);
  }
  return cudaErrorInvalidValue;
}

constexpr int kArrivalSlots = 32;  // streams with counters of their own

__device__ unsigned arrival_counters[kArrivalSlots][kMostTiles];

}  // namespace

extern "C" {

int headroom_channel_sums(const BatchNormArguments* arguments,
                          const SumTargets* targets, void* stream) {
  return launch_any<Pass::kValueSums>(*arguments, targets, stream);
}

int headroom_normalise_and_activate(const BatchNormArguments* arguments,
                                    void* stream) {
  return launch_any<Pass::kNormalise>(*arguments, nullptr, stream);
}

int headroom_activation_gradient_sums(const BatchNormArguments* arguments,
                                      const SumTargets* targets, void* stream) {
  return launch_any<Pass::kGradientSums>(*arguments, targets, stream);
}

int headroom_norm_gradient(const BatchNormArguments* arguments, void* stream) {
  return launch_any<Pass::kNormGradient>(*arguments, nullptr, stream);
}

int headroom_use_sums(const BatchNormArguments* arguments,
                      const SumTargets* targets, void* stream) {
  constexpr int kThreads = 128;
  const auto blocks =
      static_cast<unsigned>(divided_up(arguments->channels, kThreads));
  return launch_kernel(use_sums, blocks, kThreads, stream, arguments->sums,
                       *targets, arguments->groups.count, arguments->channels);
}

int headroom_arrivals(int slot, unsigned** arrivals) {
  if (slot < 0 || slot >= kArrivalSlots) return cudaErrorInvalidValue;
  void* first = nullptr;
  const cudaError_t error = cudaGetSymbolAddress(&first, arrival_counters);
  *arrivals = static_cast<unsigned*>(first) + int64_t{slot} * kMostTiles;
  return error;
}
}

}  // namespace headroom::cuda
