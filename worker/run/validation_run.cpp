#include "worker/run/validation_run.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/collectives/communicator.h"
#include "worker/data/loader/loader.h"
#include "worker/run/results.h"
#include "worker/run/run_directory.h"
#include "worker/run/run_pictures.h"
#include "worker/step/run_data.h"
#include "worker/step/stage_forward.h"
#include "worker/validation/detection_scores.h"
#include "worker/validation/tiled_validation.h"
#include "worker/validation/validate.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::run {
namespace {

// Moves the tensors that layers compute with to `device`. The anchors stay on
// the CPU: Detect copies them when it needs them.
void move_state(model::LayerGraph& model,
                const devices::ComputeDevice& device) {
  if (device.is_cpu()) return;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.role == model::TensorRole::kConstant) continue;
    *entry.tensor = entry.tensor->detach().to(device.device());
  }
}

// The metrics of a validation within training, plus COCO's twelve metrics and
// metrics by object size and by class.
std::string results_json(const validation::ValidationResult& result,
                         const validation::DetectionScores& scores) {
  using Json = nlohmann::ordered_json;
  Json all = metrics_json(result);
  const Json more = validation::scores_object(scores);
  for (const char* key :
       {"coco_stats_maxdets100", "coco_maxdets300", "per_size"}) {
    all[key] = more[key];
  }
  for (size_t i = 0; i < all["per_class"].size(); ++i) {
    all["per_class"][i]["coco"] = more["per_class"][i]["coco"];
  }
  return all.dump(2);
}

validation::TiledValidation tiled_validation(
    const configs::RunConfig& config, const loader::LoaderOptions& options) {
  return {{config.tile_height, config.tile_width, config.tile_overlap},
          options.image_height,
          options.image_width,
          config.host_memory_limit,
          options.image_limits()};
}

validation::ValidationResult validate_whole(
    model::LayerGraph& model, const loader::LoaderOptions& options,
    collectives::Communicator& communicator,
    const devices::ComputeDevice& device,
    const validation::ValidationOptions& validation) {
  loader::Loader loader(options);
  step::ReplicaForward replica(model, communicator,
                               device.options(validation.scalar_type));
  return validation::validate(replica.network, loader, communicator,
                              validation);
}

void draw_pictures(const control::Assignment& assignment,
                   const configs::RunConfig& config,
                   const loader::LoaderOptions& options,
                   const validation::ValidationResult& result,
                   control::CoordinatorClient& client) {
  RunPictures::Subject subject;
  subject.folder = assignment.run_directory;
  subject.validation = options;
  subject.say = [&](const std::string& line) {
    client.report_event({.event = EventKind::kPicture,
                         .step = 0,
                         .rank = 0,
                         .reason = line,
                         .warning = true});
  };
  RunPictures pictures(std::move(subject));
  pictures.note(result, "split " + config.task, /*is_best=*/true);
  pictures.finish();
}

// Reports the numbers of images and boxes, and the faults of the data.
void report_data(const configs::RunConfig& config, const step::RunData& inputs,
                 control::CoordinatorClient& client) {
  constexpr int64_t kFaultsShown = 10;
  for (const labels::DataReport& report : inputs.reports) {
    for (const std::string& line : report.lines(kFaultsShown)) {
      client.report_event({.event = EventKind::kData,
                           .reason = line,
                           .warning = report.num_faults() > 0});
    }
  }
  const std::string note = step::note_on_range(config, inputs);
  if (!note.empty()) {
    client.report_event({.event = EventKind::kData, .reason = note});
  }
}

// Throws Error (exit 2) if the classes of weights and data differ in number,
// and reports names that differ.
void load_judged_weights(const configs::RunConfig& config,
                         const step::RunData& inputs,
                         const std::function<void(const std::string&)>& say,
                         model::LayerGraph& model) {
  const weights::Safetensors file = weights::read_weights_file(config.weights);
  const int64_t wanted = inputs.num_classes();
  const int64_t held =
      weights::head_classes(file, inputs.table).value_or(wanted);
  if (held != wanted) {
    throw Error("val",
                config.weights + " has " + counted(held, "class") + ", but " +
                    (config.single_cls ? "--single-cls makes one of all"
                                       : cat(config.data, " names ", wanted)),
                config.single_cls
                    ? "leave --single-cls out, or judge weights that were "
                      "trained with it"
                    : "judge it on the data of its own classes" +
                          std::string(held == 1 ? ", add --single-cls if it "
                                                  "was trained with it"
                                                : "") +
                          ", or train a head for these: headroom train "
                          "--weights " +
                          shell_word(config.weights));
  }
  const std::string note =
      config.single_cls ? ""
                        : weights::class_name_note(
                              weights::class_names_of(file.metadata),
                              inputs.class_names, config.weights, config.data);
  if (!note.empty()) say(note);
  weights::load_weights(config.weights, file, model, {});
}

}  // namespace

RunOutcome run_validation(const control::Assignment& assignment,
                          control::CoordinatorClient& client,
                          collectives::Communicator& communicator,
                          const devices::ComputeDevice& device,
                          int shared_index) {
  const configs::RunConfig config =
      configs::parse_run_config(assignment.run_config_yaml, run_files::kRun);
  if (config.weights.empty()) {
    throw Error("val", "no weights were given",
                "give them with --weights FILE.safetensors");
  }
  const step::RunData inputs = step::read_data(config, shared_index);
  model::LayerGraph model(inputs.table, inputs.num_classes(),
                          step::scalar_type_of(config.precision), config.seed);
  const auto say = [&](const std::string& note) {
    if (assignment.rank != 0) return;
    client.report_event({.event = EventKind::kClasses,
                         .step = 0,
                         .rank = 0,
                         .reason = note,
                         .warning = true});
  };
  load_judged_weights(config, inputs, say, model);
  move_state(model, device);

  loader::LoaderOptions options = step::loader_options(config, model);
  options.mode = loader::LoaderMode::kValidation;
  options.dataset = &*inputs.validation;
  options.global_batch_size = config.global_batch_size;
  options.micro_batch_size = config.global_batch_size;
  options.data_parallel_size = communicator.size();
  options.data_parallel_rank = communicator.rank();
  validation::ValidationOptions validation = validation::options_of(
      config,
      validation::loss_gains(config, model, options, inputs.class_weights),
      inputs.class_names);
  validation.scalar_type = step::scalar_type_of(config.precision);
  validation.takes_core_turns = device.is_cpu();
  validation.keeps_all = true;
  validation.keeps_curves = true;
  if (assignment.rank == 0) report_data(config, inputs, client);
  wire::RunProgress progress;
  progress.phase = wire::WorkerPhase::kValidate;
  progress.image_height = options.image_height;
  progress.image_width = options.image_width;
  // Progress counts images instead of steps: one pass over all of them.
  progress.num_steps = inputs.validation->size();
  progress.steps_per_epoch = progress.num_steps;
  client.set_progress(progress);
  const auto start = std::chrono::steady_clock::now();
  validation.images_done = [&](int64_t mine) {
    // All ranks have equal shares.
    progress.step = std::min(progress.num_steps, mine * communicator.size());
    const std::chrono::duration<double> passed =
        std::chrono::steady_clock::now() - start;
    progress.images_per_second =
        static_cast<double>(progress.step) / std::max(1e-9, passed.count());
    client.set_progress(progress);
  };

  const validation::ValidationResult result =
      config.tile_height > 0
          ? validation::validate_in_tiles(model, *inputs.validation,
                                          tiled_validation(config, options),
                                          communicator, validation)
          : validate_whole(model, options, communicator, device, validation);
  if (assignment.rank != 0) {
    return {0, "validated " + counted(result.images, "image"), ""};
  }
  RunOutcome end{
      0, "validated " + counted(result.images, "image"),
      results_json(result, validation::scores_of(result, inputs.class_names))};
  RunDirectory directory(assignment.run_directory);
  directory.create(config.exist_ok, /*needed_bytes=*/1 << 20);
  directory.write_text(run_files::kJudgement, end.result_json + "\n");
  validation::write_found(config, directory.root(), *inputs.validation,
                          configs::load_data_config(config.data),
                          step::split_of(config), result.found);
  if (!config.noplots) {
    draw_pictures(assignment, config, options, result, client);
  }
  return end;
}

}  // namespace headroom::run
