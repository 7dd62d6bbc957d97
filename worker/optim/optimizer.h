// Optimizer: SGD, Adam and AdamW behind one call.
//
// An optimizer has no state of its own: its moments are flat buffers like the
// parameters, so that they are sharded, saved and loaded in the same way.
//
// Threads: as sgd_step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/optim/segments.h"

namespace headroom::optim {

enum class OptimizerKind { kSgd, kAdam, kAdamW };

// "SGD", "Adam" or "AdamW"; throws Error for anything else.
OptimizerKind parse_optimizer(const std::string& name);

// One name per moment buffer, as checkpoints have them.
std::vector<std::string> moment_names(OptimizerKind kind);

// The same for every range of the parameters.
struct OptimizerStep {
  AllGroupSettings groups;
  double momentum = 0;  // SGD's momentum, Adam's beta1
  double clip_coefficient = 1;
  int64_t step = 1;  // optimizer steps, counting this one
};

// Moves `parameters` and the moments in place; allocates nothing.
// REQUIRES: flat tensors of one size and type, one moment per name.
void optimizer_step(OptimizerKind kind, const OptimizerStep& step,
                    const at::Tensor& parameters, const at::Tensor& gradients,
                    std::span<const at::Tensor> moments,
                    std::span<const Segment> segments);

}  // namespace headroom::optim
