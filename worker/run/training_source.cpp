#include "worker/run/training_source.h"

#include <string>
#include <vector>

#include "configs/fault.h"
#include "parallel/activations/counting_allocator.h"
#include "worker/data/loader/image_weights.h"
#include "worker/data/loader/loader.h"
#include "worker/data/loader/synthetic.h"
#include "worker/data/sampling/sampler.h"
#include "worker/memory/memory_ladder.h"
#include "worker/step/apply_plan.h"
#include "worker/step/device_prefetcher.h"
#include "worker/validation/run_loaders.h"

namespace headroom::run {

TrainingSource::TrainingSource(const Inputs& inputs)
    : in_(inputs), batches_(open_batches()) {}

std::unique_ptr<loader::BatchSource> TrainingSource::open_batches() const {
  loader::LoaderOptions options = validation::training_options(
      in_.config, in_.plan, in_.inputs, in_.state.model(), in_.mesh);
  options.first_step = in_.state.counters.committed_steps;
  options.allocate_images = step::page_locked_images(in_.device);
  if (!in_.inputs.training) {
    return std::make_unique<loader::SyntheticInput>(options);
  }
  options.host_memory_limit_bytes = in_.host_memory_limit;
  options.weighted_epochs = 0;  // begin_epoch() opens them
  RunReports& reports = in_.reports;
  options.hooks.targets_begin = [&reports](int64_t step) {
    reports.begin_phase(configs::Fault::Phase::kLoader, step);
  };
  options.hooks.targets_end = [&reports](int64_t step) {
    reports.end_phase(step);
  };
  options.hooks.out_of_memory = [&reports](int64_t step,
                                           const std::string& why) {
    reports.report(
        step, memory::out_of_memory_event(
                  "loader", why, activations::CountingAllocator::take_refusal(),
                  "the loader waits and tries again"));
  };
  return std::make_unique<loader::Loader>(options);
}

void TrainingSource::begin_epoch() {
  if (!in_.config.image_weights) return;
  const step::TrainingCounters& counters = in_.state.counters;
  const std::vector<double> weights =
      loader::image_weights(*in_.inputs.training, counters.class_maps);
  step::require_same_on_all_ranks(in_.mesh.world, loader::digest_of(weights),
                                  "the weights of the images");
  // They hold until the next validation, which changes the weights.
  batches_->draw_from(
      std::make_shared<sampling::WeightedSampler>(in_.config.seed, weights),
      in_.config.noval ? INT64_MAX
                       : counters.committed_steps / in_.steps_in_epoch + 1);
}

}  // namespace headroom::run
