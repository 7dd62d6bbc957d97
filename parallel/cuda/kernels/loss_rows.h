// The loss's kernels for g++; see launch.h for what launchers promise.
#pragma once

#include <cstdint>

#include "worker/kernels/entropy.h"

namespace headroom::cuda {

// Rows of float32 or float64; `stride` from one row's first field to the next.
struct FitArguments {
  bool is_double = false;
  const void* fields = nullptr;
  int64_t stride = 0;
  const void* boxes = nullptr;    // [rows, 4]
  const void* anchors = nullptr;  // [rows, 2]
  double* ciou = nullptr;
  double* gradient = nullptr;  // [rows, 4]
  int64_t rows = 0;
};

struct EntropyArguments {
  bool is_double = false;
  const void* logits = nullptr;
  const double* targets = nullptr;
  kernels::EntropyRule rule;
  double* value = nullptr;
  double* derivative = nullptr;
  int64_t count = 0;
};

extern "C" {
int headroom_fit_rows(const FitArguments* arguments, void* stream);
int headroom_entropies(const EntropyArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
