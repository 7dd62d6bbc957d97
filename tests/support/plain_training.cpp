#include "tests/support/plain_training.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

#include "parallel/base/check.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/run_data.h"

namespace headroom {
namespace {

step::TrainingStateOptions state_options(const configs::RunConfig& config) {
  step::TrainingStateOptions options;
  options.num_classes = loader::kSyntheticClasses;
  options.scalar_type = step::scalar_type_of(config.precision);
  options.optimizer = config.optimizer;
  return options;
}

}  // namespace

PlainTraining::PlainTraining(const configs::RunConfig& config)
    : table_(layers::load_model_table(config.cfg)),
      state_(table_, state_options(config)),
      network_(table_, state_.model()) {
  loader::LoaderOptions options = step::loader_options(config, state_.model());
  options.global_batch_size = config.global_batch_size;
  options.micro_batch_size = config.global_batch_size;
  options.batch_norm_rule = {config.global_batch_size};
  source_.emplace(options);
  gains_ = loss::scale_gains(
      config.hyp, static_cast<int64_t>(state_.model().levels().size()),
      loader::kSyntheticClasses,
      std::max(config.image_height, config.image_width),
      config.label_smoothing);
  schedule_ = {config.hyp, config.epochs, loader::kSyntheticStepsPerEpoch,
               config.global_batch_size, config.cos_lr};
}

double PlainTraining::step() {
  const loader::Batch batch = source_->next();
  step::StepGradients& gradients = state_.gradients();
  gradients.begin_step();
  gradients.begin_micro_batch(/*is_last=*/true);
  const std::vector<loss::LevelTargets>& targets = batch.targets.front();
  loss::GlobalCounts counts{batch.global_size, {}};
  for (const loss::LevelTargets& level : targets) {
    counts.matches.push_back(level.size());
  }
  double loss = 0;
  {
    std::vector<at::Tensor> heads = network_.forward(
        step::network_input(batch.images, state_.scalar_type()));
    const int64_t fields = 5 + loader::kSyntheticClasses;
    for (at::Tensor& head : heads) {
      head = head.view({head.size(0), head.size(1) / fields, fields,
                        head.size(2), head.size(3)})
                 .permute({0, 1, 3, 4, 2});
    }
    const loss::DetectionLoss result =
        loss::detection_loss(heads, targets, counts, gains_);
    heads.clear();
    loss = result.total.item<double>();
    result.total.backward();
  }
  gradients.finish({});
  step::CommitArguments commit;
  commit.step = batch.step;
  commit.settings = optim::settings_at(schedule_, batch.step, batch.epoch);
  commit.weight_decay = optim::weight_decay(schedule_);
  commit.gradient_norm = std::sqrt(state_.squared_norm_share());
  state_.commit(commit);
  return loss;
}

}  // namespace headroom
