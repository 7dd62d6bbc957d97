// The kernels' launchers: plain pointers, so that nvcc reads none of LibTorch's
// headers, and g++ none of the kernels'.
//
// All work is put on `stream` and nothing waits. Pointers are the device's.
// Each returns a cudaError_t; 0 is success.
#pragma once

#include <cstdint>

#include "parallel/cuda/kernels/batch_norm_body.h"

namespace headroom::cuda {

enum class ElementType { kFloat64, kFloat32, kBFloat16, kFloat16 };

// A BatchNormMap before its element type is known; weights and partial sums are
// of the accumulator's type.
struct BatchNormArguments {
  ElementType type = ElementType::kFloat32;
  const void* y = nullptr;
  const void* gradient = nullptr;
  int64_t gradient_stride = 0;
  void* result = nullptr;
  const double* statistics = nullptr;
  const void* weight = nullptr;
  const void* bias = nullptr;
  const double* means = nullptr;
  void* partial = nullptr;
  PixelGroups groups;
  int64_t channels = 0;
  layers::ActivationFunction activation;
};

// Elements of `partial` that the two summing passes need.
int64_t partial_elements(const BatchNormArguments& arguments);

extern "C" {
// [groups, 2, channels]: sums of y and of its square.
int headroom_channel_sums(const BatchNormArguments* arguments, double* sums,
                          void* stream);
int headroom_normalise_and_activate(const BatchNormArguments* arguments,
                                    void* stream);
// [groups, 2, channels]: sums of dz and of dz * n.
int headroom_activation_gradient_sums(const BatchNormArguments* arguments,
                                      double* sums, void* stream);
int headroom_norm_gradient(const BatchNormArguments* arguments, void* stream);
}

// How a map's channels are laid over a block of threads.
struct BlockShape {
  int vector = 1;  // neighbouring channels of a thread
  int size_x = 1;
  int size_y = 1;
  int64_t tiles = 1;
};
BlockShape block_shape(const BatchNormArguments& arguments);
// Chunks of the largest group, at least 1.
int64_t chunks_of(const PixelGroups& groups, const BlockShape& shape);

}  // namespace headroom::cuda
