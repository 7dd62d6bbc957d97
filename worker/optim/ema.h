// EMA: the averaged weights that are validated and saved.
//
//   average = d*average + (1 - d)*value,  d(t) = 0.9999*(1 - exp(-t/2000))
//
// t counts optimizer steps from 1. The average covers every floating-point
// state tensor, batch-norm statistics included, and starts as a copy;
// num_batches_tracked is no average and stays.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace headroom::optim {

double ema_decay(int64_t updates);

// In place; allocates nothing. `updates` counts this one.
// REQUIRES: two flat tensors of one size and type; updates >= 1.
void ema_update(const at::Tensor& average, const at::Tensor& value,
                int64_t updates);

}  // namespace headroom::optim
