#include "worker/validation/run_loaders.h"

#include <memory>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/predict/memory_request.h"
#include "worker/data/loader/image_weights.h"
#include "worker/data/loader/loader_plan.h"
#include "worker/data/sampling/sampler.h"
#include "worker/step/parallel_context.h"

namespace headroom::validation {
loader::LoaderOptions training_options(const configs::RunConfig& config,
                                       const plan::Plan& plan,
                                       const step::RunData& inputs,
                                       const model::LayerGraph& model,
                                       const collectives::Mesh& mesh) {
  loader::LoaderOptions options = step::loader_options(config, model);
  options.mode = config.rect ? loader::LoaderMode::kTrainRect
                             : loader::LoaderMode::kTrainMosaic;
  options.multi_scale = config.multi_scale;
  options.packs_samples = configs::augment_place(config).on_device;
  if (!config.augment_program.empty()) {
    predict::LabelBound bound = predict::label_bound(config);
    std::vector<int64_t> boxes;
    for (int64_t i = 0; i < inputs.training->size(); ++i) {
      boxes.push_back(std::ssize(inputs.training->labels(i)));
    }
    bound.statistics = predict::label_statistics(boxes);
    options.program = {.command = config.augment_program,
                       .num_classes = inputs.num_classes(),
                       .most_boxes = predict::most_boxes(bound, 1).boxes};
  }
  if (config.close_mosaic > 0) {
    options.mosaic_epochs = config.epochs - config.close_mosaic;
  }
  options.global_batch_size = config.global_batch_size;
  options.data_parallel_size = plan.layout.data_parallel_size;
  options.data_parallel_rank = mesh.here.data_parallel_rank;
  options.micro_batch_size = plan.micro_batch_size;
  options.batch_norm_rule = plan.batch_norm_rule();
  options.own_rows = step::own_rows(mesh, options.stride);
  if (computes_on_cards(config.device) && mesh.is_last_stage() &&
      mesh.spatial->size() == 1) {
    options.pack = step::target_packing(
        model, config.cuda_graphs ? std::optional(predict::label_bound(config))
                                  : std::nullopt);
  }
  if (inputs.training) options.dataset = &*inputs.training;
  if (config.image_weights) {
    options.weights = std::make_shared<sampling::WeightedSampler>(
        config.seed, loader::image_weights(*inputs.training, {}));
  }
  return options;
}

loader::LoaderOptions validation_options(const configs::RunConfig& config,
                                         const plan::Plan& plan,
                                         const labels::Dataset& dataset,
                                         const model::LayerGraph& model,
                                         const collectives::Mesh& mesh) {
  loader::LoaderOptions options = step::loader_options(config, model);
  options.mode = loader::LoaderMode::kValidation;
  options.dataset = &dataset;
  options.global_batch_size = predict::validation_batch_size(config);
  options.micro_batch_size = plan.validation_images > 0
                                 ? plan.validation_images
                                 : options.global_batch_size;
  options.data_parallel_size = plan.layout.data_parallel_size;
  options.data_parallel_rank = mesh.here.data_parallel_rank;
  options.own_rows = step::own_rows(mesh, options.stride);
  return options;
}

predict::HostMemory host_memory_of(
    const configs::RunConfig& config, const plan::Plan& plan,
    const step::RunData& inputs, const model::LayerGraph& model,
    const collectives::Mesh& mesh,
    const std::vector<layers::LayerCost>& layers) {
  loader::LoaderOptions training =
      training_options(config, plan, inputs, model, mesh);
  loader::LoaderOptions validation =
      validation_options(config, plan, *inputs.validation, model, mesh);
  predict::HostMemory memory;
  memory.records = predict::record_bytes(config, inputs.validation->size(),
                                         plan.layout.data_parallel_size,
                                         mesh.world.rank() == 0);
  if (mesh.world.rank() == 0) {
    memory.files = predict::file_bytes(layers, config.precision);
    memory.state_copy = predict::state_copy_bytes(layers, config);
    memory.pictures = predict::picture_bytes(config);
  }
  memory.peer_copies =
      predict::peer_copy_bytes(layers, config, plan, mesh.here.pipeline_stage);
  const auto share_out = [&](const predict::HostShares& shares) {
    training.host_memory_limit_bytes = shares.training;
    validation.host_memory_limit_bytes = shares.validation;
    memory.training = loader::LoaderPlan(training).budget();
    memory.validation = loader::LoaderPlan(validation).budget();
  };
  share_out({});
  const int64_t limit = config.host_memory_limit;
  if (limit == 0) return memory;
  if (memory.least_bytes() > limit) {
    throw Error("data",
                "the loaders need " + format_bytes(memory.least_bytes()) +
                    " for a batch of each and the pictures in work" +
                    (memory.peer_copies > 0
                         ? ", with " + format_bytes(memory.peer_copies) +
                               " for copies of state in case a rank is lost"
                         : "") +
                    ", but "
                    "--host-memory-limit is " +
                    format_bytes(limit),
                cat("use --host-memory-limit ", memory.least_bytes(),
                    " or more, or a smaller --batch or --img"),
                ExitCode::kNoPlan);
  }
  share_out(predict::host_shares(limit, memory));
  return memory;
}

std::string describe(const predict::HostMemory& memory) {
  const configs::LoaderBudget& training = memory.training;
  return "the loader may take " + format_bytes(training.total_bytes()) +
         " of the host's memory (" + counted(training.num_threads, "thread") +
         ", " + counted(training.queue_depth, "batch") + ", " +
         format_bytes(training.cache_bytes) +
         " of remembered images), the validation's " +
         format_bytes(memory.validation.total_bytes()) + ", its detections " +
         format_bytes(memory.records) +
         (memory.state_copy > 0 ? ", a copy of the state for checkpoints " +
                                      format_bytes(memory.state_copy)
                                : "") +
         (memory.peer_copies > 0 ? ", copies of state in case a rank is lost " +
                                       format_bytes(memory.peer_copies)
                                 : "") +
         (memory.pictures > 0 ? ", pictures " + format_bytes(memory.pictures)
                              : "");
}

}  // namespace headroom::validation
