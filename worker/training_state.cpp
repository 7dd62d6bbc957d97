#include "worker/training_state.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "worker/model/conv_block.h"
#include "worker/optim/ema.h"
#include "worker/optim/grad_norm.h"

namespace headroom {
namespace {

std::vector<ArenaEntry> entries(LayerGraph& model, bool parameters) {
  std::vector<ArenaEntry> result;
  for (const NamedTensor& entry : model.state()) {
    const bool wanted = parameters
                            ? entry.is_parameter()
                            : entry.role == TensorRole::kRunningStatistic;
    if (wanted) result.push_back({entry.name, entry.tensor});
  }
  return result;
}

// YOLOv5's parameter groups: 0 biases, 1 decayed weights, 2 norm scales.
int parameter_group(TensorRole role) {
  switch (role) {
    case TensorRole::kConvolutionWeight:
      return 1;
    case TensorRole::kNormWeight:
      return 2;
    default:
      return 0;
  }
}

// running = (1 - momentum) * running + momentum * sum / num_groups
template <typename Scalar>
void move_running_statistic(const at::Tensor& running, const double* sums,
                            int64_t channels, int64_t num_groups) {
  Scalar* values = running.data_ptr<Scalar>();
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / static_cast<double>(num_groups);
    values[c] = static_cast<Scalar>((1 - kBatchNormMomentum) *
                                        static_cast<double>(values[c]) +
                                    kBatchNormMomentum * mean);
  }
}

}  // namespace

TrainingState::TrainingState(const ModelTable& table, int64_t num_classes,
                             at::ScalarType scalar_type, uint64_t seed,
                             int64_t freeze) {
  model_ = std::make_unique<LayerGraph>(table, num_classes, scalar_type, seed);
  average_model_ =
      std::make_unique<LayerGraph>(table, num_classes, scalar_type, seed);
  parameters_ =
      std::make_unique<Arena>(entries(*model_, true), /*with_gradients=*/true);
  statistics_ = std::make_unique<Arena>(entries(*model_, false), false);
  average_parameters_ =
      std::make_unique<Arena>(entries(*average_model_, true), false);
  average_statistics_ =
      std::make_unique<Arena>(entries(*average_model_, false), false);
  momentum_ = at::zeros_like(parameters_->values());
  accumulated_ = at::zeros_like(parameters_->values());
  batch_norm_sums_ = at::zeros({model_->batch_norm_sums_size()}, at::kDouble);
  model_->freeze(freeze);

  size_t slot = 0;
  for (const NamedTensor& entry : model_->state()) {
    if (!entry.is_parameter()) continue;
    const Arena::Slot& place = parameters_->slots()[slot++];
    if (entry.tensor->requires_grad()) {
      segments_.push_back(
          {place.offset, place.size, parameter_group(entry.role)});
    }
  }
}

double TrainingState::accumulated_gradient_norm() const {
  return std::sqrt(squared_norm_of_sum(accumulated_, parameters_->gradients()));
}

void TrainingState::start_epoch() {
  accumulated_.zero_();
  counters.meter = {};
}

bool TrainingState::commit(const CommitArguments& arguments) {
  at::NoGradGuard no_grad;
  add_in_place(accumulated_, parameters_->gradients());

  const double* sums = batch_norm_sums_.const_data_ptr<double>();
  for (const LayerGraph::BatchNorm& norm : model_->batch_norms()) {
    AT_DISPATCH_FLOATING_TYPES(
        norm.running_mean->scalar_type(), "running_statistics", [&] {
          const double* mean = sums + norm.sums_offset;
          move_running_statistic<scalar_t>(*norm.running_mean, mean,
                                           norm.channels, arguments.num_groups);
          move_running_statistic<scalar_t>(*norm.running_var,
                                           mean + norm.channels, norm.channels,
                                           arguments.num_groups);
        });
  }

  const bool optimizer_step =
      is_optimizer_step(arguments.step, counters.last_optimizer_step,
                        arguments.settings.accumulate);
  if (optimizer_step) {
    const auto& lr = arguments.settings.lr;
    const std::array<GroupSettings, 3> groups = {
        GroupSettings{lr[0], 0}, GroupSettings{lr[1], arguments.weight_decay},
        GroupSettings{lr[2], 0}};
    sgd_step(parameters_->values(), accumulated_, momentum_, segments_, groups,
             arguments.settings.momentum,
             clip_coefficient(arguments.gradient_norm),
             counters.optimizer_steps == 0);
    accumulated_.zero_();
    ++counters.optimizer_steps;
    counters.last_optimizer_step = arguments.step;
    ema_update(average_parameters_->values(), parameters_->values(),
               counters.optimizer_steps);
    ema_update(average_statistics_->values(), statistics_->values(),
               counters.optimizer_steps);
  }
  counters.committed_steps = arguments.step + 1;
  return optimizer_step;
}

void TrainingState::commit_without_update(int64_t step) {
  counters.committed_steps = step + 1;
}

void TrainingState::reset_average() {
  at::NoGradGuard no_grad;
  average_parameters_->values().copy_(parameters_->values());
  average_statistics_->values().copy_(statistics_->values());
}

std::vector<TrainingState::Buffer> TrainingState::buffers() {
  return {
      {"parameters", parameters_.get(), &parameters_->values()},
      {"momentum", parameters_.get(), &momentum_},
      {"accumulated_gradients", parameters_.get(), &accumulated_},
      {"average_parameters", parameters_.get(), &average_parameters_->values()},
      {"statistics", statistics_.get(), &statistics_->values()},
      {"average_statistics", statistics_.get(), &average_statistics_->values()},
  };
}

}  // namespace headroom
