// loss_body: the loss's rows as CUDA's threads run them, in plain C++; a test
// runs the same text on the CPU. One thread a row.
#pragma once

#include "parallel/cuda/kernels/loss_rows.h"
#include "worker/kernels/box_iou.h"

namespace headroom::cuda {

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

}  // namespace headroom::cuda
