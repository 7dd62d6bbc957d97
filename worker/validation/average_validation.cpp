#include "worker/validation/average_validation.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>

#include "parallel/base/convolution_workspaces.h"
#include "parallel/base/units.h"
#include "parallel/predict/phase_memory.h"
#include "worker/data/loader/loader.h"
#include "worker/pictures/batch_pictures.h"
#include "worker/step/apply_plan.h"
#include "worker/step/parallel_context.h"
#include "worker/step/stage_forward.h"
#include "worker/validation/run_loaders.h"

namespace headroom::validation {
namespace {

// The largest memory estimate over all shapes on which the network has run.
class Prediction {
 public:
  Prediction(predict::MemoryRequest request, const plan::MeshCoordinates& rank)
      : request_(std::move(request)), rank_(rank) {
    request_.step.reset();
    add({});
  }
  void add(const predict::ValidationShape& shape) {
    if (std::ranges::find(shapes_, shape) == shapes_.end())
      shapes_.push_back(shape);
  }
  // On a device, the estimate uses the workspaces that its library allocated
  // for these shapes.
  predict::MemoryEstimate most() {
    request_.workspaces = &convolution_workspaces();
    predict::MemoryEstimate most;
    for (const predict::ValidationShape& shape : shapes_) {
      request_.validation = shape;
      const predict::MemoryEstimate estimate =
          predict::estimate_validation(request_, rank_);
      if (estimate.total() > most.total()) most = estimate;
    }
    return most;
  }

 private:
  predict::MemoryRequest request_;
  const plan::MeshCoordinates rank_;
  std::vector<predict::ValidationShape> shapes_;
};

}  // namespace

predict::ValidationShape validation_shape(const loader::Batch& part) {
  predict::ValidationShape shape;
  shape.samples = part.images.size(0);
  shape.image_height = part.image_height;
  shape.image_width = part.image_width;
  for (const loss::LevelTargets& level : part.targets.front()) {
    shape.matches.push_back(level.size());
  }
  return shape;
}

ValidatedAverage validate_average(const AverageValidation& of) {
  const memory::PhaseWatch watch("validation", of.state.device().memory());
  loader::LoaderOptions input = validation_options(
      of.config, of.memory.plan, of.dataset, of.state.model(), of.mesh);
  input.host_memory_limit_bytes = of.host_memory_limit;
  loader::Loader loader(input);
  model::LayerGraph& model = of.state.average_model();
  step::GatherLayerExecutor* const layers = of.state.average_layer_executor();
  const plan::Plan& plan = of.memory.plan;
  const at::TensorOptions maps = of.state.state_options();
  step::ParallelContext context(plan, of.config.global_batch_size, input.stride,
                                of.mesh, layers);
  const std::unique_ptr<step::StageForward> network = of.retry.run([&] {
    return std::make_unique<step::StageForward>(
        model, step::routes_of_stage(model, plan, of.mesh.here.pipeline_stage),
        of.mesh, context, maps, layers);
  });
  network->set_retry(of.retry);
  network->set_num_parts(of.num_parts);

  Prediction prediction(of.memory, of.mesh.here);
  ValidationOptions options = options_of(of.config, of.gains, of.class_names);
  options.scalar_type = of.state.scalar_type();
  options.retry = of.retry;
  options.takes_core_turns = of.state.device().is_cpu();
  options.passes_per_batch =
      divided_up(input.global_batch_size, input.micro_batch_size);
  // The options must be equal on all ranks; only one rank draws the pictures.
  if (!of.config.noplots) options.pictured = pictures::pictured_samples(input);
  options.keeps_curves = !of.config.noplots;
  options.before_part = [&](const loader::Batch& part) {
    prediction.add(validation_shape(part));
  };
  if (of.images_done) {
    // All data-parallel ranks have equal shares.
    options.images_done = [&, all = of.dataset.size()](int64_t mine) {
      of.images_done(std::min(all, mine * input.data_parallel_size), all);
    };
  }
  ValidatedAverage validated;
  try {
    validated.result = validate(*network, loader, of.mesh.world, options);
  } catch (const c10::OutOfMemoryError&) {
    of.num_parts = network->num_parts_after_failure();
    throw;
  }
  if (of.num_parts == 1) of.num_parts = 0;  // the memory shortage is over
  validated.memory = watch.compare(prediction.most());
  return validated;
}

}  // namespace headroom::validation
