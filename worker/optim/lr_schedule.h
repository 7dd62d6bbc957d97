// Learning rate, momentum and accumulation of every step: YOLOv5's rules.
//
// Pure: the settings of a step depend only on the options, the step and the
// epoch, so a resumed or re-planned run continues exactly.
//
//   f(e)      linear (1 - e/E)(1 - lrf) + lrf, or cosine
//             ((1 - cos(pi e/E))/2)(lrf - 1) + 1, with e the epoch of the step
//             up to the epoch in which the warm-up ends, and one epoch less
//             afterwards: YOLOv5 updates its rate after an epoch, and its
//             first update sets f(0)
//   warm-up   steps 0..nw, both included, nw = max(round(warmup_epochs *
//             steps_per_epoch), 100): bias rate from warmup_bias_lr, other
//             rates from 0, to lr0*f(e); momentum from warmup_momentum;
//             accumulation from 1 to nominal/batch; all linear in the step
//   nominal   gradients are summed over `accumulate` steps until about 64
//             images are seen; the decay is scaled by their number / 64
//
// warmup_epochs = 0 means no warm-up at all. In YOLOv5 the minimum of 100 steps
// would still apply; this is the one deviation from it.
//
// The ultralytics package differs: short_warmup, nw = round(min(warmup_epochs,
// E - 1) * steps_per_epoch); lr_of_epoch, e is always the step's epoch.
#pragma once

#include <array>
#include <cstdint>

#include "configs/run_config.h"

namespace headroom::optim {

// Index into StepSettings::lr and the settings of sgd_step.
enum ParameterGroup : int {
  kBiasGroup = 0,        // all biases, also of batch norms; no decay
  kWeightGroup = 1,      // convolution weights; decayed
  kNormWeightGroup = 2,  // batch-norm scales; no decay
};
inline constexpr int kNumParameterGroups = 3;

struct ScheduleOptions {
  configs::Hyperparameters hyp;
  int64_t epochs = 1;
  int64_t steps_per_epoch = 1;
  int64_t global_batch_size = 1;
  bool cos_lr = false;
  int64_t nominal_batch_size = 64;
  // True for SGD, whose momentum is warmed up; false for Adam's beta1.
  bool warms_momentum = true;
  bool short_warmup = false;  // RunConfig's keys of these names
  bool lr_of_epoch = false;
};

struct StepSettings {
  int64_t accumulate = 1;  // steps between optimizer steps
  std::array<double, kNumParameterGroups> lr = {};
  double momentum = 0;
};

// `step` counts from 0 over the whole run.
// REQUIRES: 0 <= step, 0 <= epoch, and the options' counts are positive.
StepSettings settings_at(const ScheduleOptions& options, int64_t step,
                         int64_t epoch);

// Factor of lr0 at an epoch: the function f above.
double lr_factor(const ScheduleOptions& options, int64_t epoch);

// The last step of the warm-up; -1 if there is no warm-up.
int64_t last_warmup_step(const ScheduleOptions& options);

// The decay of kWeightGroup: weight_decay * batch * accumulate / nominal.
double weight_decay(const ScheduleOptions& options);

// Returns true if the optimizer updates at the end of `step`.
// `last_optimizer_step` is -1 before the first optimizer step. The caller never
// resets it. At the start of an epoch the caller zeroes the accumulated
// gradient, as YOLOv5 does: a partial sum at the end of an epoch is dropped.
// With RunConfig::carry_accumulation it is not zeroed.
bool is_optimizer_step(int64_t step, int64_t last_optimizer_step,
                       int64_t accumulate);

}  // namespace headroom::optim
