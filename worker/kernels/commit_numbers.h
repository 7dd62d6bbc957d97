// Data that host and device exchange at the end of a step.
//
// On a device the end of a step is a chain of kernels whose launches depend on
// sizes only: the gradient norm, the decision whether the step counts, the
// optimizer, the running statistics. So the whole chain can be captured in a
// graph. Values that change from step to step are in CommitNumbers; results of
// the device are in CommitOutcome.
//
// Plain structs, also compiled by nvcc.
#pragma once

#include "worker/kernels/element_math.h"

namespace headroom::kernels {

inline constexpr int kParameterGroups = 3;
// The items of a step: three losses, then the divisor of the losses and of the
// gradient, at least 1. The divisor is the sum of the places' weights of a head
// without anchors (worker/loss/place_loss.h), and 0 for any other head.
inline constexpr int kStepItems = 4;
inline constexpr int kDivisorItem = 3;
inline constexpr double kMostGradientNorm = 10;

struct CommitNumbers {
  bool ends_step = false;        // false: do nothing and write no outcome
  bool may_commit = false;       // the host found no reason to reject the step
  bool steps_optimizer = false;  // false: only accumulate gradients
  // Factor of a step's gradients, a power of two; the divisor among the items
  // comes on top.
  double gradient_scale = 1;
  double num_groups = 1;      // number of groups summed in batch_norm_sums
  double average_weight = 0;  // 1 - decay
  // The member `clip` is not used: CommitOutcome::clip replaces it.
  SgdCoefficients<double> sgd[kParameterGroups] = {};
  AdamCoefficients<double> adam[kParameterGroups] = {};
};

// Has only doubles, because it is sent as a tensor of doubles.
struct CommitOutcome {
  double items[kStepItems] = {};
  double squared_norm = 0;  // of this step's gradient plus the accumulated one
  double commits = 0;       // 1 if the step counts, else 0
  double clip = 1;          // factor that limits the norm of this gradient
  // 0 if an exchange between the ranks' devices has failed, so that sums over
  // ranks may be invalid; the step then does not count.
  double is_complete = 1;
};
inline constexpr int kOutcomeDoubles = sizeof(CommitOutcome) / sizeof(double);

// What the losses and the gradient are divided by.
HEADROOM_HD double divisor_of(const double* items) {
  return items[kDivisorItem] > 1 ? items[kDivisorItem] : 1;
}

// The factor that limits a gradient of `norm`, as PyTorch clips.
HEADROOM_HD double clip_coefficient(double norm, double most) {
  const double factor = most / (norm + 1e-6);
  return factor < 1 ? factor : 1;
}

}  // namespace headroom::kernels
