// The kernels' launchers. They take plain pointers, so that nvcc need not
// compile LibTorch's headers, and g++ need not compile the kernels.
//
// All work is queued on `stream`, and nothing waits. Pointers are device
// pointers. Each launcher returns a cudaError_t; 0 is success.
#pragma once

#include <cstdint>

#include "configs/layers/activation.h"

namespace headroom::cuda {

enum class ElementType { kFloat64, kFloat32, kBFloat16, kFloat16 };

inline constexpr int kMostGroups = 64;  // most groups of one launch

// Group g has the pixels [begin[g], begin[g + 1]).
struct PixelGroups {
  int64_t begin[kMostGroups + 1];
  int count;
};

// A map [pixels, channels] and the inputs of a pass over it. Weights, bias and
// partial sums are float; double if the map is double.
struct BatchNormArguments {
  ElementType type = ElementType::kFloat32;
  const void* y = nullptr;
  // gradient of the output; nullptr in forward
  const void* gradient = nullptr;
  int64_t gradient_stride = 0;         // elements from one pixel to the next
  void* result = nullptr;              // nullptr if a pass only sums
  const double* statistics = nullptr;  // [groups, 2, C]: mean, 1 / deviation
  const void* weight = nullptr;        // [C]
  const void* bias = nullptr;
  // [groups, 2, C]: means of dz and of dz * n, where n is the normalised value;
  // nullptr means zeros
  const double* means = nullptr;
  const double* sums = nullptr;  // [groups, 2, C]: for headroom_use_sums
  void* partial = nullptr;       // memory of partial_bytes() bytes
  PixelGroups groups;
  int64_t channels = 0;
  layers::ActivationFunction activation;
  int multiprocessors = 1;
};

// Results computed from a map's sums, by the last of the blocks that add them
// up. A pointer is nullptr if its result is not needed.
struct SumTargets {
  double* sums = nullptr;        // [groups, 2, C]: the sums
  double* statistics = nullptr;  // [groups, 2, C]: mean, 1 / deviation
  // [2, C]: mean and unbiased variance of each group in `counted` are added.
  double* running = nullptr;
  double* means = nullptr;  // [groups, 2, C]: the sums divided by `values`
  void* weight_gradient = nullptr;  // [C], in the weights' type
  void* bias_gradient = nullptr;
  bool adds_gradients = false;  // true: add to the two gradients
  double epsilon = 0;           // added to the variance in `statistics`
  double values[kMostGroups];   // number of values per channel in a whole group
  uint64_t counted = 0;         // bit g: group g counts for `running`
  unsigned* arrivals = nullptr;  // kMostTiles zeros; zero again afterwards
};

inline constexpr int kMostTiles = 1024;

// How a map is divided among blocks of threads: x covers the channels of a tile
// and y the pixels; each tile has as many blocks as there are chunks.
struct MapGrid {
  int vector = 1;  // adjacent channels per thread
  int size_x = 1;
  int size_y = 1;
  int64_t tiles = 1;
  int64_t chunks = 1;  // number of chunks of the largest group
  int64_t chunk_pixels = 1;
};
// Uses enough blocks for all multiprocessors if the map is large enough. For
// sums it uses no more blocks than that, because the last block of a tile adds
// up the results of all others.
MapGrid map_grid(const BatchNormArguments& arguments, bool sums);

// Bytes of `partial` that the two summing passes need.
int64_t partial_bytes(const BatchNormArguments& arguments);

// Where a launcher's work runs.
struct LaunchPlace {
  void* stream = nullptr;
  void* partial = nullptr;       // null except in a summing pass
  unsigned* arrivals = nullptr;  // kMostTiles zeros; zero again afterwards
};

extern "C" {
// Computes the sums of y and of its square.
int headroom_channel_sums(const BatchNormArguments* arguments,
                          const SumTargets* targets, void* stream);
int headroom_normalise_and_activate(const BatchNormArguments* arguments,
                                    void* stream);
// Computes the sums of dz and of dz * n.
int headroom_activation_gradient_sums(const BatchNormArguments* arguments,
                                      const SumTargets* targets, void* stream);
int headroom_norm_gradient(const BatchNormArguments* arguments, void* stream);
// Computes the targets' statistics, running sums and means from the arguments'
// sums, which ranks have exchanged.
int headroom_use_sums(const BatchNormArguments* arguments,
                      const SumTargets* targets, void* stream);

// The arrival counters of the current device for stream number `slot`. All are
// 0 unless a kernel of that stream uses them. Fails beyond the last slot.
int headroom_arrivals(int slot, unsigned** arrivals);
}

}  // namespace headroom::cuda
