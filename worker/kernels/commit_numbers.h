// What the host and a device tell each other at a step's end.
//
// On a device the end of a step is a chain of kernels whose launches depend on
// nothing but sizes: the gradient's norm, the decision whether the step counts,
// the optimizer, the running statistics. So all of it can be captured as part
// of a graph; what changes from step to step lies in CommitNumbers, and what
// the device found out in CommitOutcome.
//
// Plain values, for nvcc too.
#pragma once

#include "worker/kernels/element_math.h"

namespace headroom::kernels {

inline constexpr int kParameterGroups = 3;
inline constexpr int kStepItems = 3;  // box, obj, cls
inline constexpr double kMostGradientNorm = 10;

struct CommitNumbers {
  bool ends_step = false;        // else nothing is done, and no outcome written
  bool may_commit = false;       // the host knows nothing against it
  bool steps_optimizer = false;  // else gradients are accumulated only
  // What a step's gradients are multiplied by: a power of two.
  double gradient_scale = 1;
  double num_groups = 1;      // groups that batch norm's sums are over
  double average_weight = 0;  // 1 - decay
  // Their `clip` is the outcome's instead.
  SgdCoefficients<double> sgd[kParameterGroups] = {};
  AdamCoefficients<double> adam[kParameterGroups] = {};
};

// Doubles alone: it travels as a tensor of them.
struct CommitOutcome {
  double items[kStepItems] = {};
  double squared_norm = 0;  // The gradient's, with what was accumulated before.
  double commits = 0;       // 1: the step counts
  double clip = 1;          // what that gradient is multiplied by
};
inline constexpr int kOutcomeDoubles = sizeof(CommitOutcome) / sizeof(double);

// A gradient of `norm` is multiplied by this, as PyTorch clips.
HEADROOM_HD double clip_coefficient(double norm, double most) {
  const double factor = most / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

}  // namespace headroom::kernels
