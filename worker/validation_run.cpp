#include "worker/validation_run.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/collectives/communicator.h"
#include "worker/data/loader.h"
#include "worker/model/weights.h"
#include "worker/results.h"
#include "worker/run_directory.h"
#include "worker/run_inputs.h"
#include "worker/stage_forward.h"
#include "worker/validate.h"

namespace headroom {

namespace {

// What the rows compute with; the anchors stay, which Detect copies as it needs
// them.
void move_state(LayerGraph& model, const ComputeDevice& device) {
  if (device.is_cpu()) return;
  for (const NamedTensor& entry : model.state()) {
    if (entry.role == TensorRole::kConstant) continue;
    *entry.tensor = entry.tensor->detach().to(device.device());
  }
}

}  // namespace

RunOutcome run_validation(const Assignment& assignment,
                          CoordinatorClient& client, Communicator& communicator,
                          const ComputeDevice& device) {
  const RunConfig config =
      parse_run_config(assignment.run_config_yaml, "run.yaml");
  if (config.weights.empty()) {
    throw Error("val", "no weights were given",
                "give them with --weights FILE.safetensors");
  }
  const RunInputs inputs = read_inputs(config);
  LayerGraph model(inputs.table, inputs.num_classes(),
                   scalar_type_of(config.precision), config.seed);
  load_weights(config.weights, model, {});
  move_state(model, device);

  LoaderOptions options = loader_options(config, model);
  options.mode = LoaderMode::kValidation;
  options.dataset = &*inputs.validation;
  options.global_batch_size = config.global_batch_size;
  options.micro_batch_size = config.global_batch_size;
  options.data_parallel_size = communicator.size();
  options.data_parallel_rank = communicator.rank();
  Loader loader(options);
  ReplicaForward replica(model, communicator,
                         device.options(scalar_type_of(config.precision)));

  ValidationOptions validation;
  validation.confidence_threshold = config.confidence_threshold;
  validation.nms_iou_threshold = config.nms_iou_threshold;
  validation.max_detections = config.max_detections;
  validation.class_names = inputs.class_names;
  validation.scalar_type = scalar_type_of(config.precision);
  validation.gains = scale_gains(
      config.hyp, static_cast<int64_t>(model.levels().size()),
      inputs.num_classes(), std::max(options.image_height, options.image_width),
      config.label_smoothing);
  ProgressReport progress;
  progress.phase = "validate";
  progress.image_height = options.image_height;
  progress.image_width = options.image_width;
  client.set_progress(progress);

  const ValidationResult result =
      validate(replica.network, loader, communicator, validation);
  RunOutcome end{0, "validated " + std::to_string(result.images) + " images",
                 to_json(result)};
  if (assignment.rank == 0) {
    RunDirectory directory(assignment.run_directory);
    directory.create(config.exist_ok, /*needed_bytes=*/1 << 20);
    directory.write_text("results.json", end.result_json + "\n");
  }
  return end;
}

}  // namespace headroom
