// The loss's rows as CUDA's threads run them, in plain C++; a test
// runs the same text on the CPU. One thread a row.
#pragma once

#include <cstdint>

#include "worker/kernels/box_iou.h"
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

template <typename T>
HEADROOM_HD void fit_one_row(const FitArguments& a, int64_t row) {
  const T* fields = static_cast<const T*>(a.fields) + row * a.stride;
  const T* box = static_cast<const T*>(a.boxes) + row * 4;
  const T* sizes = static_cast<const T*>(a.anchors) + row * 2;
  double raw[4], wanted[4];
  for (int i = 0; i < 4; ++i) {
    raw[i] = static_cast<double>(fields[i]);
    wanted[i] = static_cast<double>(box[i]);
  }
  const double anchor[2] = {static_cast<double>(sizes[0]),
                            static_cast<double>(sizes[1])};
  const kernels::RowFit fit = kernels::fit_row(raw, anchor, wanted);
  a.ciou[row] = fit.ciou;
  for (int i = 0; i < 4; ++i) a.gradient[row * 4 + i] = fit.gradient[i];
}

template <typename T>
HEADROOM_HD void one_entropy(const EntropyArguments& a, int64_t i) {
  const kernels::EntropyTerm term =
      kernels::entropy(static_cast<double>(static_cast<const T*>(a.logits)[i]),
                       a.targets[i], a.rule);
  a.value[i] = term.value;
  a.derivative[i] = term.derivative;
}

// The launchers; launch.h has what they promise.
extern "C" {
int headroom_fit_rows(const FitArguments* arguments, void* stream);
int headroom_entropies(const EntropyArguments* arguments, void* stream);
}

}  // namespace headroom::cuda
