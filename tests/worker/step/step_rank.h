// StepRank: one rank that trains a model, yolov5n if none is named, on
// synthetic input under a given plan, without planner and coordinator. Change
// `options` before the first step.
#pragma once

#include <optional>

#include "configs/layers/detect_branches.h"
#include "configs/layers/model_table.h"
#include "tests/support/usual_boxes.h"
#include "worker/data/loader/synthetic.h"
#include "worker/step/apply_plan.h"
#include "worker/step/parallel_context.h"
#include "worker/step/run_data.h"
#include "worker/step/trainer.h"

namespace headroom::step {

class StepRank {
 public:
  // Borrows the mesh. Reads sizes, precision and hyper-parameters of `config`.
  StepRank(const configs::RunConfig& config, const plan::Plan& plan,
           collectives::Mesh& ranks)
      : mesh_(ranks),
        table_(layers::load_model_table(config.cfg.empty() ? "yolov5n"
                                                           : config.cfg)),
        state(table_, state_options(config, plan)),
        source(input_options(config, plan)) {
    options.schedule = {config.hyp, 10, 100, config.global_batch_size, false};
    options.gains = loss::scale_gains(config.hyp, 3, loader::kSyntheticClasses,
                                      static_cast<int>(config.image_width), 0);
    options.plan = plan;
    options.assign = loader_options(config, state.model()).assign;
  }

  Trainer& trainer() {
    if (!trainer_) trainer_.emplace(options, state, mesh_);
    return *trainer_;
  }
  StepResult step() { return trainer().train_step(source.next(), {}); }

 private:
  TrainingStateOptions state_options(const configs::RunConfig& config,
                                     const plan::Plan& plan) {
    TrainingStateOptions made;
    made.num_classes = loader::kSyntheticClasses;
    made.scalar_type = config.precision == configs::Precision::kFp64
                           ? at::kDouble
                           : at::kFloat;
    made.zero_stage = plan.zero_stage;
    made.mesh = &mesh_;
    made.layers = layers_of_stage(plan, mesh_.here.pipeline_stage,
                                  layers::num_layers(table_));
    made.fill = predict_usual_boxes;
    return made;
  }
  loader::LoaderOptions input_options(const configs::RunConfig& config,
                                      const plan::Plan& plan) {
    loader::LoaderOptions made = loader_options(config, state.model());
    made.global_batch_size = config.global_batch_size;
    made.data_parallel_size = plan.layout.data_parallel_size;
    made.data_parallel_rank = mesh_.here.data_parallel_rank;
    made.micro_batch_size = plan.micro_batch_size;
    made.batch_norm_rule = {plan.batch_norm_group_size};
    made.own_rows = own_rows(mesh_, made.stride);
    return made;
  }

  collectives::Mesh& mesh_;
  const layers::ModelTable table_;

 public:
  TrainingState state;
  loader::SyntheticInput source;
  Trainer::Options options;

 private:
  std::optional<Trainer> trainer_;
};

}  // namespace headroom::step
