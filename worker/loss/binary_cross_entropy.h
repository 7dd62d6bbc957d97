// Binary cross-entropy on logits with a weight for positives, and its focal
// form, split so that a map that is almost everywhere negative stays cheap.
//
//   L(x, t)  = (1 - t) softplus(x) + positive_weight t softplus(-x)
//   focal    = L * (.25 t + .75 (1 - t)) * q^gamma,
//              q = (1 - t) s + t (1 - s), s = sigmoid(x)      (Lin et al. 2017)
//
// A map has one target almost everywhere (0, or the smoothed negative): it is
// summed with that target in vectorised passes, and the few other entries are
// then corrected one by one in double.
//
// Threads: pure.
#pragma once

#include <ATen/core/Tensor.h>

#include "worker/kernels/entropy.h"

namespace headroom::loss {

// Sum of L over a tensor of logits that all have `target`; in double, so that
// it depends little on how a batch is cut.
double entropy_sum(const at::Tensor& logits, double target,
                   const kernels::EntropyRule& rule);
// The same where the logits are, without waiting for it: 0-dim double.
at::Tensor entropy_total(const at::Tensor& logits, double target,
                         const kernels::EntropyRule& rule);

// dL/dx of the same, elementwise.
at::Tensor entropy_derivative(const at::Tensor& logits, double target,
                              const kernels::EntropyRule& rule);

}  // namespace headroom::loss
