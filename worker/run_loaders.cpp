#include "worker/run_loaders.h"

#include <memory>

#include "configs/augment_place.h"
#include "configs/memory/memory_request.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/data/image_weights.h"
#include "worker/data/loader_plan.h"
#include "worker/data/weighted_sampler.h"
#include "worker/rank_context.h"

namespace headroom {

LoaderOptions training_options(const RunConfig& config, const Plan& plan,
                               const RunInputs& inputs, const LayerGraph& model,
                               const Mesh& mesh) {
  LoaderOptions options = loader_options(config, model);
  options.mode =
      config.rect ? LoaderMode::kTrainRect : LoaderMode::kTrainMosaic;
  options.multi_scale = config.multi_scale;
  options.packs_samples = augment_place(config).on_device;
  if (config.close_mosaic > 0) {
    options.mosaic_epochs = config.epochs - config.close_mosaic;
  }
  options.global_batch_size = config.global_batch_size;
  options.data_parallel_size = plan.layout.data_parallel_size;
  options.data_parallel_rank = mesh.here.data_parallel_rank;
  options.micro_batch_size = plan.micro_batch_size;
  options.batch_norm_group_size = plan.batch_norm_group_size;
  options.own_rows = own_rows(mesh, options.stride);
  if (inputs.training) options.dataset = &*inputs.training;
  if (config.image_weights) {
    options.weights = std::make_shared<WeightedSampler>(
        config.seed, image_weights(*inputs.training, {}));
  }
  return options;
}

LoaderOptions validation_options(const RunConfig& config, const Plan& plan,
                                 const Dataset& dataset,
                                 const LayerGraph& model, const Mesh& mesh) {
  LoaderOptions options = loader_options(config, model);
  options.mode = LoaderMode::kValidation;
  options.dataset = &dataset;
  options.global_batch_size = validation_batch_size(config);
  options.micro_batch_size = plan.validation_images > 0
                                 ? plan.validation_images
                                 : options.global_batch_size;
  options.data_parallel_size = plan.layout.data_parallel_size;
  options.data_parallel_rank = mesh.here.data_parallel_rank;
  options.own_rows = own_rows(mesh, options.stride);
  return options;
}

HostMemory host_memory_of(const RunConfig& config, const Plan& plan,
                          const RunInputs& inputs, const LayerGraph& model,
                          const Mesh& mesh, const std::vector<RowCost>& rows) {
  LoaderOptions training = training_options(config, plan, inputs, model, mesh);
  LoaderOptions validation =
      validation_options(config, plan, *inputs.validation, model, mesh);
  HostMemory memory;
  if (mesh.world.rank() == 0) {
    memory.files = file_bytes(rows, config.precision);
    memory.state_copy = state_copy_bytes(rows, config);
    memory.pictures = picture_bytes(config);
  }
  const auto share_out = [&](const HostShares& shares) {
    training.host_memory_limit_bytes = shares.training;
    validation.host_memory_limit_bytes = shares.validation;
    memory.training = LoaderPlan(training).budget();
    memory.validation = LoaderPlan(validation).budget();
  };
  share_out({});
  const int64_t limit = config.host_memory_limit;
  if (limit == 0) return memory;
  if (memory.least_bytes() > limit) {
    throw Error("data",
                "the loaders need " + format_bytes(memory.least_bytes()) +
                    " for a batch of each and the pictures in work, but "
                    "--host-memory-limit is " +
                    format_bytes(limit),
                "use --host-memory-limit " +
                    std::to_string(memory.least_bytes()) +
                    " or more, or a smaller --batch or --img",
                ExitCode::kNoPlan);
  }
  share_out(host_shares(limit, memory));
  return memory;
}

std::string describe(const HostMemory& memory) {
  const LoaderBudget& training = memory.training;
  return "the loader may take " + format_bytes(training.total_bytes()) +
         " of the host's memory (" + std::to_string(training.num_threads) +
         (training.num_threads == 1 ? " thread, " : " threads, ") +
         std::to_string(training.queue_depth) +
         (training.queue_depth == 1 ? " batch, " : " batches, ") +
         format_bytes(training.cache_bytes) +
         " of remembered images), the validation's " +
         format_bytes(memory.validation.total_bytes()) +
         (memory.state_copy > 0 ? ", a copy of the state for checkpoints " +
                                      format_bytes(memory.state_copy)
                                : "") +
         (memory.pictures > 0 ? ", pictures " + format_bytes(memory.pictures)
                              : "");
}

}  // namespace headroom
