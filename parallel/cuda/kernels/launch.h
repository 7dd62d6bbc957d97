// The kernels' launchers: plain pointers, so that nvcc reads none of LibTorch's
// headers, and g++ none of the kernels'.
//
// All work is put on `stream` and nothing waits. Pointers are the device's.
// Each returns a cudaError_t; 0 is success.
#pragma once

#include <cstdint>

#include "configs/layers/layer_program.h"

namespace headroom::cuda {

enum class ElementType { kFloat64, kFloat32, kBFloat16, kFloat16 };

inline constexpr int kMostGroups = 64;  // groups of one launch

// Group g is pixels [begin[g], begin[g + 1]).
struct PixelGroups {
  int64_t begin[kMostGroups + 1];
  int count;
};

// A map [pixels, channels] and what a pass over it needs. Weights, bias and
// partial sums are float, double where the map is double.
struct BatchNormArguments {
  ElementType type = ElementType::kFloat32;
  const void* y = nullptr;
  const void* gradient = nullptr;  // the output's; null in forward
  int64_t gradient_stride = 0;  // elements from one of its pixels to the next
  void* result = nullptr;       // null where a pass only sums
  const double* statistics = nullptr;  // [groups, 2, C]: mean, 1 / deviation
  const void* weight = nullptr;        // [C]
  const void* bias = nullptr;
  const double* means = nullptr;  // [groups, 2, C]: dz, dz * n; null: zeros
  void* partial = nullptr;        // partial_elements() of them
  PixelGroups groups;
  int64_t channels = 0;
  layers::ActivationFunction activation;
  int multiprocessors = 1;
};

// What is made of a map's sums, by the last of the blocks that add them up:
// each is null where it is not wanted.
struct SumTargets {
  double* sums = nullptr;        // [groups, 2, C]: themselves
  double* statistics = nullptr;  // [groups, 2, C]: mean, 1 / deviation
  // [2, C]: mean and unbiased variance of every group in `counted` are added.
  double* running = nullptr;
  double* means = nullptr;          // [groups, 2, C]: the sums / values
  void* weight_gradient = nullptr;  // [C], of the weights' type
  void* bias_gradient = nullptr;
  bool adds_gradients = false;   // adds to what the two hold
  double epsilon = 0;            // the statistics' epsilon
  double values[kMostGroups];    // values per channel in a whole group
  uint64_t counted = 0;          // groups, as bits
  unsigned* arrivals = nullptr;  // kMostTiles zeros, and so again afterwards
};

inline constexpr int kMostTiles = 1024;

// How a map is laid over blocks of threads: x over the channels of a tile, y
// over pixels, and over each tile as many blocks as there are chunks.
struct MapGrid {
  int vector = 1;  // neighbouring channels of a thread
  int size_x = 1;
  int size_y = 1;
  int64_t tiles = 1;
  int64_t chunks = 1;  // chunks of the largest group
  int64_t chunk_pixels = 1;
};
// Enough blocks for every multiprocessor where the map is large enough; for
// sums no more than that, because the last block of a tile adds up all others'.
MapGrid map_grid(const BatchNormArguments& arguments, bool sums);

// Elements of `partial` that the two summing passes need.
int64_t partial_elements(const BatchNormArguments& arguments);

extern "C" {
// Sums of y and of its square.
int headroom_channel_sums(const BatchNormArguments* arguments,
                          const SumTargets* targets, void* stream);
int headroom_normalise_and_activate(const BatchNormArguments* arguments,
                                    void* stream);
// Sums of dz and of dz * n.
int headroom_activation_gradient_sums(const BatchNormArguments* arguments,
                                      const SumTargets* targets, void* stream);
int headroom_norm_gradient(const BatchNormArguments* arguments, void* stream);
// The targets' statistics, running sums and means, of sums [groups, 2, C] that
// ranks have exchanged.
int headroom_use_sums(const double* sums, const SumTargets* targets, int groups,
                      int64_t channels, void* stream);

// Arrival counters of the current device for the `slot`-th stream, all 0 unless
// a kernel of that stream uses them. Fails beyond the last slot.
int headroom_arrivals(int slot, unsigned** arrivals);
}

}  // namespace headroom::cuda
