#include "worker/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::optim {
namespace {

// Python's round(): half to even.
double round_half_even(double value) { return std::nearbyint(value); }

double interpolate(double step, double last_step, double from, double to) {
  if (step >= last_step) return to;
  return (to - from) / last_step * step + from;
}

double nominal_over_batch(const ScheduleOptions& options) {
  return static_cast<double>(options.nominal_batch_size) /
         static_cast<double>(options.global_batch_size);
}

int64_t rounded_accumulation(double value) {
  return std::max<int64_t>(static_cast<int64_t>(round_half_even(value)), 1);
}

void check_options(const ScheduleOptions& options) {
  HEADROOM_CHECK(
      options.epochs > 0 && options.steps_per_epoch > 0 &&
          options.global_batch_size > 0 && options.nominal_batch_size > 0,
      cat("schedule of ", options.epochs, " epochs, ", options.steps_per_epoch,
          " steps per epoch, batch ", options.global_batch_size,
          ", nominal batch ", options.nominal_batch_size));
}

// The epoch whose factor the rate of a step uses.
int64_t epoch_of_rate(const ScheduleOptions& options, int64_t epoch) {
  if (options.lr_of_epoch) return epoch;
  const int64_t last_warmup_epoch =
      std::max<int64_t>(last_warmup_step(options) / options.steps_per_epoch, 0);
  return epoch <= last_warmup_epoch ? epoch : epoch - 1;
}

}  // namespace

double lr_factor(const ScheduleOptions& options, int64_t epoch) {
  check_options(options);
  const double lrf = options.hyp.lrf;
  const double e = static_cast<double>(epoch);
  const double epochs = static_cast<double>(options.epochs);
  if (options.cos_lr)
    return (1 - std::cos(e * M_PI / epochs)) / 2 * (lrf - 1) + 1;
  return (1 - e / epochs) * (1 - lrf) + lrf;
}

int64_t last_warmup_step(const ScheduleOptions& options) {
  check_options(options);
  const double most = options.short_warmup
                          ? static_cast<double>(options.epochs - 1)
                          : options.hyp.warmup_epochs;
  const double epochs = std::min(options.hyp.warmup_epochs, most);
  if (epochs <= 0) return -1;
  const auto steps = static_cast<int64_t>(
      round_half_even(epochs * static_cast<double>(options.steps_per_epoch)));
  return options.short_warmup ? steps : std::max<int64_t>(steps, 100);
}

StepSettings settings_at(const ScheduleOptions& options, int64_t step,
                         int64_t epoch) {
  HEADROOM_CHECK(step >= 0 && epoch >= 0,
                 cat("step ", step, " of epoch ", epoch));
  const configs::Hyperparameters& hyp = options.hyp;
  const double lr = hyp.lr0 * lr_factor(options, epoch_of_rate(options, epoch));
  StepSettings settings;
  settings.lr = {lr, lr, lr};
  settings.momentum = hyp.momentum;
  settings.accumulate = rounded_accumulation(nominal_over_batch(options));

  const int64_t last = last_warmup_step(options);
  if (step > last) return settings;
  const double x = static_cast<double>(step);
  const double x_end = static_cast<double>(last);
  settings.accumulate = rounded_accumulation(
      interpolate(x, x_end, 1, nominal_over_batch(options)));
  settings.lr[kBiasGroup] = interpolate(x, x_end, hyp.warmup_bias_lr, lr);
  settings.lr[kWeightGroup] = interpolate(x, x_end, 0, lr);
  settings.lr[kNormWeightGroup] = settings.lr[kWeightGroup];
  if (!options.warms_momentum) return settings;
  settings.momentum = interpolate(x, x_end, hyp.warmup_momentum, hyp.momentum);
  return settings;
}

double weight_decay(const ScheduleOptions& options) {
  check_options(options);
  const int64_t accumulate = rounded_accumulation(nominal_over_batch(options));
  return options.hyp.weight_decay *
         static_cast<double>(options.global_batch_size * accumulate) /
         static_cast<double>(options.nominal_batch_size);
}

bool is_optimizer_step(int64_t step, int64_t last_optimizer_step,
                       int64_t accumulate) {
  return step - last_optimizer_step >= accumulate;
}

}  // namespace headroom::optim
