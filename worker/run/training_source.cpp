#include "worker/run/training_source.h"

#include <string>
#include <utility>
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
namespace {

std::unique_ptr<loader::BatchSource> open_batches(
    const RunContext& run, step::TrainingState& state,
    int64_t host_memory_limit, std::shared_ptr<loader::SharedImages> images,
    RunReports& reports) {
  loader::LoaderOptions options = validation::training_options(
      run.config, run.assignment.plan, run.data, state.model(), *state.mesh());
  options.first_step = state.counters.committed_steps;
  options.allocate_images = step::page_locked_images(run.device);
  if (!run.data.training) {
    return std::make_unique<loader::SyntheticInput>(options);
  }
  options.host_memory_limit_bytes = host_memory_limit;
  options.shared_images = std::move(images);
  options.weighted_epochs = 0;  // begin_epoch() allows one epoch after another
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

}  // namespace

TrainingSource::TrainingSource(const RunContext& run,
                               step::TrainingState& state,
                               int64_t host_memory_limit,
                               std::shared_ptr<loader::SharedImages> images,
                               RunReports& reports)
    : run_(run),
      state_(state),
      batches_(open_batches(run, state, host_memory_limit, std::move(images),
                            reports)) {}

void TrainingSource::begin_epoch() {
  if (!run_.config.image_weights) return;
  const step::TrainingCounters& counters = state_.counters;
  const std::vector<double> weights =
      loader::image_weights(*run_.data.training, counters.class_maps);
  step::require_same_on_all_ranks(state_.mesh()->world,
                                  loader::digest_of(weights),
                                  "the weights of the images");
  // These weights are used until the next validation.
  batches_->draw_from(
      std::make_shared<sampling::WeightedSampler>(run_.config.seed, weights),
      run_.config.noval ? INT64_MAX
                        : counters.committed_steps / run_.steps_in_epoch + 1);
}

}  // namespace headroom::run
