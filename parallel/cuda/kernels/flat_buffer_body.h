// Optimizer, clipping and EMA over a flat buffer in one pass, as CUDA's threads
// run it, in plain C++; a test runs the same text on the CPU.
//
// The flat buffer is cut into pieces that lie in one parameter group each; a
// block of threads works on one piece. What belongs to no group (frozen layers,
// running statistics, padding) is only averaged.
#pragma once

#include <cstdint>

#include "parallel/base/device_scratch.h"
#include "worker/kernels/element_math.h"

namespace headroom::cuda {

inline constexpr int kFlatBufferGroups = 3;

struct FlatBufferPiece {
  int64_t offset = 0;  // in elements
  int32_t size = 0;    // at most kMostPieceElements
  int32_t group = -1;  // of the coefficients; -1: only averaged
};
static_assert(sizeof(FlatBufferPiece) == kPieceBytes);

enum class FlatBufferRule { kSgd, kAdam };

// Arrays of the flat buffer's elements, without overlap.
template <typename T>
struct FlatBufferArrays {
  T* parameters = nullptr;
  const T* gradients = nullptr;
  T* first_moment = nullptr;   // SGD's momentum
  T* second_moment = nullptr;  // Adam only
  T* average = nullptr;        // null: there is none
};

template <typename T>
struct FlatBufferCoefficients {
  kernels::SgdCoefficients<T> sgd[kFlatBufferGroups] = {};
  kernels::AdamCoefficients<T> adam[kFlatBufferGroups] = {};
  T average_weight = 0;
  // What the gradient is multiplied by, where only the device knows it, in
  // place of `clip` above; null where that counts.
  const T* clip = nullptr;
};

// Elements first, first + step, ... of `piece`.
template <FlatBufferRule kRule, typename T>
HEADROOM_HD void update_piece(const FlatBufferArrays<T>& arrays,
                              const FlatBufferCoefficients<T>& coefficients,
                              const FlatBufferPiece& piece, int first,
                              int step) {
  const int group = piece.group < 0 ? 0 : piece.group;
  kernels::SgdCoefficients<T> sgd = coefficients.sgd[group];
  kernels::AdamCoefficients<T> adam = coefficients.adam[group];
  if (coefficients.clip != nullptr) sgd.clip = adam.clip = *coefficients.clip;
  for (int k = first; k < piece.size; k += step) {
    const int64_t i = piece.offset + k;
    T parameter = arrays.parameters[i];
    if (piece.group >= 0) {
      if constexpr (kRule == FlatBufferRule::kSgd) {
        // What it held before the first step is not read.
        T buffer = sgd.first_step ? T(0) : arrays.first_moment[i];
        kernels::sgd_element(parameter, arrays.gradients[i], buffer, sgd);
        arrays.first_moment[i] = buffer;
      } else {
        T first_moment = arrays.first_moment[i];
        T second_moment = arrays.second_moment[i];
        kernels::adam_element(parameter, arrays.gradients[i], first_moment,
                              second_moment, adam);
        arrays.first_moment[i] = first_moment;
        arrays.second_moment[i] = second_moment;
      }
      arrays.parameters[i] = parameter;
    }
    if (arrays.average != nullptr) {
      T average = arrays.average[i];
      kernels::average_element(average, parameter, coefficients.average_weight);
      arrays.average[i] = average;
    }
  }
}

}  // namespace headroom::cuda

// The launchers; launch.h has what they promise.
extern "C" {
// `pieces` lies on the device.
int headroom_flat_buffer_step_float(
    headroom::cuda::FlatBufferRule rule,
    const headroom::cuda::FlatBufferArrays<float>* arrays,
    const headroom::cuda::FlatBufferCoefficients<float>* coefficients,
    const headroom::cuda::FlatBufferPiece* pieces, int64_t num_pieces,
    void* stream);
int headroom_flat_buffer_step_double(
    headroom::cuda::FlatBufferRule rule,
    const headroom::cuda::FlatBufferArrays<double>* arrays,
    const headroom::cuda::FlatBufferCoefficients<double>* coefficients,
    const headroom::cuda::FlatBufferPiece* pieces, int64_t num_pieces,
    void* stream);
}
