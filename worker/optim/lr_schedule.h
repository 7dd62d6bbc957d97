// Learning rate, momentum and accumulation of every step: YOLOv5's rules.
//
// Pure: a step's settings follow from the options, the step and the epoch
// alone, so a resumed or re-planned run continues exactly.
//
//   f(e)      linear (1 - e/E)(1 - lrf) + lrf, or cosine
//             ((1 - cos(pi e/E))/2)(lrf - 1) + 1, with e the epoch of the step
//             up to the epoch in which the warm-up ends, and the epoch before
//             it from then on: YOLOv5 moves its rate after an epoch, and its
//             first move sets f(0)
//   warm-up   steps 0..nw, both included, nw = max(round(warmup_epochs *
//             steps_per_epoch), 100): bias rate from warmup_bias_lr, other
//             rates from 0, to lr0*f(e); momentum from warmup_momentum;
//             accumulation from 1 to nominal/batch; all linear in the step
//   nominal   gradients are summed over `accumulate` steps until about 64
//             images are seen; the decay is scaled by what that rounding leaves
//
// warmup_epochs = 0 means no warm-up at all. YOLOv5's floor of 100 steps would
// hold there too: Headroom's one deviation, so that calm runs can be asked for.
#pragma once

#include <array>
#include <cstdint>

#include "configs/run_config.h"

namespace headroom::optim {

// Order of StepSettings::lr and of the settings of sgd_step.
enum ParameterGroup : int {
  kBiasGroup = 0,        // every bias, batch norm's included; no decay
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
  // SGD's momentum is warmed up, Adam's beta1 is not.
  bool warms_momentum = true;
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

// The function f above.
double lr_factor(const ScheduleOptions& options, int64_t epoch);

// Last step of the warm-up; -1 without one.
int64_t last_warmup_step(const ScheduleOptions& options);

// The decay of kWeightGroup: weight_decay * batch * accumulate / nominal.
double weight_decay(const ScheduleOptions& options);

// Whether the optimizer moves at the end of `step`. `last_optimizer_step` is
// -1 before the first. At an epoch's start the caller zeroes the accumulated
// gradient while this count runs on: a partial sum at the end of an epoch is
// thrown away, as in YOLOv5.
bool is_optimizer_step(int64_t step, int64_t last_optimizer_step,
                       int64_t accumulate);

}  // namespace headroom::optim
