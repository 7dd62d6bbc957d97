#include "worker/run/run_context.h"

#include "parallel/base/convolution_workspaces.h"
#include "parallel/base/run_files.h"
#include "parallel/predict/memory_request.h"
#include "worker/data/loader/synthetic.h"
#include "worker/data/sampling/sampler.h"
#include "worker/run/run_end.h"
#include "worker/run/starting_state.h"

namespace headroom::run {
namespace {

std::vector<layers::LayerCost> layers_of(const step::RunData& data) {
  layers::ModelTable table = data.table;
  table.num_classes = static_cast<int>(data.num_classes());
  return layers::layer_costs(table);
}

}  // namespace

RunContext::RunContext(const control::Assignment& newest,
                       control::CoordinatorClient& coordinator,
                       CrossGenerationState& carried)
    : assignment(newest),
      rank(newest.rank),
      config(
          configs::parse_run_config(newest.run_config_yaml, run_files::kRun)),
      client(coordinator),
      faults(*carried.faults),
      device(*carried.device),
      data(read_once(carried, config, newest)),
      network(carried.network),
      layers(layers_of(data)),
      memory(predict::memory_request(config, newest.plan, layers)),
      steps_in_epoch(data.training
                         ? sampling::steps_per_epoch(data.training->size(),
                                                     config.global_batch_size)
                         : loader::kSyntheticStepsPerEpoch),
      images_in_epoch(data.training
                          ? data.training->size()
                          : steps_in_epoch * config.global_batch_size),
      num_steps(run::num_steps(config, steps_in_epoch)),
      schedule{
          .hyp = config.hyp,
          .epochs = config.epochs,
          .steps_per_epoch = steps_in_epoch,
          .global_batch_size = config.global_batch_size,
          .cos_lr = config.cos_lr,
          .warms_momentum = config.optimizer == configs::OptimizerKind::kSgd,
          .short_warmup = config.short_warmup,
          .lr_of_epoch = config.lr_of_epoch} {
  if (!device.is_cpu()) memory.workspaces = &convolution_workspaces();
}

}  // namespace headroom::run
