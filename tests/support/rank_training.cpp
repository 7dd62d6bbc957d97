#include "tests/support/rank_training.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "configs/layers/detect_branches.h"
#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/planner/planner.h"
#include "parallel/predict/phase_memory.h"
#include "tests/support/usual_boxes.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/data/loader/loader_options.h"
#include "worker/step/apply_plan.h"
#include "worker/step/parallel_context.h"
#include "worker/step/run_data.h"

namespace headroom {
namespace {

loader::LoaderOptions input_options(const configs::RunConfig& config,
                                    const plan::Plan& plan,
                                    const collectives::Mesh& mesh,
                                    const model::LayerGraph& model) {
  loader::LoaderOptions options = step::loader_options(config, model);
  options.global_batch_size = config.global_batch_size;
  options.data_parallel_size = plan.layout.data_parallel_size;
  options.data_parallel_rank = mesh.here.data_parallel_rank;
  options.micro_batch_size = plan.micro_batch_size;
  options.batch_norm_rule = plan.batch_norm_rule();
  options.own_rows = step::own_rows(mesh, options.stride);
  return options;
}

}  // namespace

configs::RunConfig small_synthetic_run(const std::string& layout) {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.synthetic_input = true;
  config.image_height = config.image_width = 64;
  config.global_batch_size = 4;
  config.precision = configs::Precision::kFp64;
  config.layout = plan::parse_layout(layout);
  config.activations = "keep";
  return config;
}

plan::Plan plan_of_synthetic_run(const configs::RunConfig& config) {
  return planner::plan_or_throw(
      config, config.layout->world_size(),
      layers::layer_costs(layers::load_model_table(config.cfg)));
}

RankTraining::RankTraining(const configs::RunConfig& config,
                           const plan::Plan& plan,
                           collectives::Communicator& world,
                           int64_t more_boxes_per_image,
                           const devices::ComputeDevice& device)
    : config_(config),
      more_boxes_per_image_(more_boxes_per_image),
      mesh_(world, plan.layout) {
  const layers::ModelTable table = layers::load_model_table(config.cfg);
  if (!config.teacher_model.empty()) {
    teacher_ =
        std::make_unique<step::Teacher>(std::make_unique<model::LayerGraph>(
            layers::load_model_table(config.teacher_model),
            loader::kSyntheticClasses, step::scalar_type_of(config.precision),
            /*seed=*/77));
  }
  step::TrainingStateOptions options;
  options.num_classes = loader::kSyntheticClasses;
  options.scalar_type = step::scalar_type_of(config.precision);
  options.map_type = step::map_type_of(config.precision);
  options.freeze = config.freeze;
  options.fill = predict_usual_boxes;
  options.optimizer = config.optimizer;
  options.zero_stage = plan.zero_stage;
  options.device = device;
  options.mesh = &mesh_;
  options.layers = step::layers_of_stage(plan, mesh_.here.pipeline_stage,
                                         layers::num_layers(table));
  state_ = std::make_unique<step::TrainingState>(table, options);
  loader::LoaderOptions input =
      input_options(config, plan, mesh_, state_->model());
  input.allocate_images = step::page_locked_images(device);
  assign_ = input.assign;
  labels_.assumed_boxes_per_image =
      loader::kSyntheticBoxesPerImage + more_boxes_per_image;
  if (!device.is_cpu() && mesh_.is_last_stage() && mesh_.spatial->size() == 1) {
    pack_ = input.pack = step::target_packing(
        state_->model(),
        config.cuda_graphs ? std::optional(labels_) : std::nullopt);
  }
  source_ = std::make_unique<loader::SyntheticInput>(input);

  step::Trainer::Options training;
  training.schedule = {config.hyp, config.epochs,
                       loader::kSyntheticStepsPerEpoch,
                       config.global_batch_size, config.cos_lr};
  gains_ = loss::scale_gains(
      config.hyp, static_cast<int64_t>(state_->model().levels().size()),
      loader::kSyntheticClasses,
      std::max(config.image_height, config.image_width),
      config.label_smoothing);
  training.gains = gains_;
  training.plan = plan;
  training.teacher = teacher_.get();
  training.labels = labels_;
  training.captures_micro_batches = config.cuda_graphs && !device.is_cpu();
  training.following = [this]() -> const loader::Batch* {
    if (keeps_batch_ && batch_) {
      following_->step = batch_->step + 1;
      return &*following_;
    }
    const loader::Batch* const next = source_->made_ahead();
    const int64_t more = next == nullptr ? 0 : more_boxes_at(next->step);
    if (more == 0) return next;
    // The memory is not counted, as if a loader thread had made the batch.
    const activations::CountingAllocator::HostMemory not_counted;
    ahead_ = *next;
    add_boxes(ahead_, more);
    return &ahead_;
  };
  trainer_ = std::make_unique<step::Trainer>(training, *state_, mesh_);
}

// Adds the boxes on a grid over the image.
void RankTraining::add_boxes(loader::Batch& batch, int64_t more) const {
  constexpr int64_t kColumns = 23;
  std::vector<loss::LabelRow> labels;
  for (int64_t image = 0; image < batch.images.size(0); ++image) {
    for (const loss::LabelRow& row : batch.labels)
      if (row.image == image) labels.push_back(row);
    for (int64_t box = 0; box < more; ++box) {
      loss::LabelRow row;
      row.image = image;
      row.class_index = box % loader::kSyntheticClasses;
      row.w = 0.03 + 0.002 * static_cast<double>(box % 40);
      row.h = 0.11 - row.w / 2;
      row.cx = 0.1 + 0.8 * static_cast<double>(box % kColumns) / kColumns;
      row.cy = 0.1 + 0.8 * static_cast<double>(box * 7 % kColumns) / kColumns;
      labels.push_back(row);
    }
  }
  batch.labels = std::move(labels);
  batch.targets.clear();
  batch.packed_targets.clear();
  loader::assign_micro_batches(batch, assign_, pack_);
}

at::Tensor RankTraining::in_other_memory(const at::Tensor& images) const {
  at::Tensor copy = loader::make_image_tensor(
      images.size(0), images.size(1), images.size(2), images.size(3),
      step::page_locked_images(state_->device()));
  copy.copy_(images);
  return copy;
}

const loader::Batch& RankTraining::next_batch() {
  loader::Batch next = source_->next();
  if (!batch_) {
    batch_ = std::move(next);
    const int64_t more = more_boxes_at(batch_->step);
    if (more > 0) add_boxes(*batch_, more);
    if (keeps_batch_) {
      following_ = batch_;
      following_->images = in_other_memory(batch_->images);
    }
  } else {
    std::swap(batch_, following_);
    batch_->step = next.step;
    batch_->epoch = next.epoch;
  }
  if (keeps_batch_on_device_) {
    batch_->images = state_->device().upload(batch_->images);
    following_->images = batch_->images;
  }
  return *batch_;
}

step::StepResult RankTraining::attempt() {
  const loader::Batch& batch = next_batch();
  shape_ = step::step_shape(batch, mesh_, state_->model());
  step::StepResult result = trainer_->train_step(batch, [this] {
    if (before_vote_) before_vote_();
    return step::Trainer::Requests{};
  });
  if (!keeps_batch_) batch_.reset();
  return result;
}

step::StepResult RankTraining::step() {
  step::StepResult result = attempt();
  HEADROOM_CHECK(result.committed, "a step was not committed");
  return result;
}

validation::ValidatedAverage RankTraining::validate(
    const predict::MemoryRequest& memory, const labels::Dataset& dataset) {
  configs::RunConfig config = config_;
  config.synthetic_input = false;
  return validation::validate_average({config,
                                       memory,
                                       dataset,
                                       dataset.class_names(),
                                       gains_,
                                       *state_,
                                       mesh_,
                                       validation_parts_,
                                       {}});
}

memory::MemoryComparison RankTraining::save(
    const predict::MemoryRequest& memory,
    const std::filesystem::path& checkpoints) {
  const memory::PhaseWatch watch("checkpoint", state_->device().memory());
  checkpoint::save_checkpoint(checkpoints, *state_, &mesh_, "{}", /*keep=*/1,
                              {});
  return watch.compare(predict::estimate_checkpoint(memory, mesh_.here));
}

}  // namespace headroom
