#include "tests/support/layout_run.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "configs/layers/detect_branches.h"
#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/batch_split.h"
#include "tests/support/labelled_images.h"
#include "tests/support/run_ranks.h"
#include "worker/checkpoint/state_stream.h"
#include "worker/step/apply_plan.h"
#include "worker/step/parallel_context.h"
#include "worker/step/run_data.h"
#include "worker/step/trainer.h"

namespace headroom {
namespace {

constexpr int64_t kClasses = 3;
constexpr size_t kLayers = 25;  // the layers of yolov5n

// The first layer of each stage when yolov5n's 25 layers are cut into `stages`.
std::vector<int64_t> stage_begins(int stages) {
  switch (stages) {
    case 1:
      return {0};
    case 2:
      return {0, 9};
    case 3:
      return {0, 5, 14};
    case 4:
      return {0, 4, 9, 17};
    default:
      HEADROOM_CHECK(false, std::to_string(stages) + " stages");
  }
  return {};
}

std::map<std::string, at::Tensor> collect_state(step::TrainingState& state,
                                                collectives::Mesh& mesh) {
  checkpoint::StateStream stream(&mesh);
  for (const step::TrainingState::Buffer& buffer : state.buffers()) {
    if (buffer.name == "accumulated_gradients") continue;
    stream.add(buffer, buffer.name + ".");
  }
  stream.connect();
  std::vector<std::string> names;
  for (const auto& tensor : stream.tensors()) names.push_back(tensor.name);
  std::map<std::string, at::Tensor> all;
  size_t next = 0;
  stream.collect(
      [&](const at::Tensor& tensor) { all[names[next++]] = tensor.clone(); });
  return all;
}

}  // namespace

LayoutCase layout_case(const std::string& name, const std::string& layout,
                       int64_t micro_batch_size, int zero_stage,
                       plan::ActivationPolicy policy) {
  LayoutCase result;
  result.name = name;
  result.plan.layout = plan::parse_layout(layout);
  result.plan.micro_batch_size = micro_batch_size;
  result.plan.zero_stage = zero_stage;
  result.plan.stage_begins =
      stage_begins(result.plan.layout.pipeline_parallel_size);
  if (policy != plan::ActivationPolicy::kKeep)
    result.plan.activation_policies.assign(kLayers, policy);
  return result;
}

LayoutRun run_layout(const LayoutCase& layout,
                     const LayoutRunOptions& options) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  configs::RunConfig config;
  config.synthetic_input = true;
  config.image_height = options.height;
  config.image_width = options.width;
  config.global_batch_size = options.global_batch_size;
  config.precision = options.precision;
  config.optimizer = layout.optimizer;
  if (options.calm) {
    config.hyp.lr0 = 1e-5;
    config.hyp.lrf = 1;
    config.hyp.warmup_epochs = 0;
  }
  plan::Plan plan = layout.plan;
  const layers::ModelTable table =
      options.table ? *options.table : layers::load_model_table("yolov5n");
  if (!plan.activation_policies.empty())
    plan.activation_policies.resize(
        static_cast<size_t>(layers::num_layers(table)),
        plan.activation_policies.front());
  const int data = plan.layout.data_parallel_size;
  plan.batch_norm_group_size = options.batch_norm_group_size;
  plan.even_batch_norm_groups = options.even_groups;
  if (plan.micro_batch_size == 0) {
    plan.micro_batch_size = plan::largest_share(options.global_batch_size, data,
                                                plan.batch_norm_rule());
  }

  LayoutRun run;
  const int ranks = plan.layout.world_size();
  run.bytes.resize(static_cast<size_t>(ranks));
  run.peak_bytes.resize(static_cast<size_t>(ranks));
  std::mutex mutex;
  RankOptions rank_options;
  rank_options.operation_timeout = std::chrono::seconds(60);
  rank_options.time_limit = std::chrono::seconds(600);
  run_ranks(
      ranks,
      [&](int rank, collectives::Communicator& world) {
        collectives::Mesh mesh(world, plan.layout);
        step::TrainingStateOptions state_options;
        state_options.num_classes = kClasses;
        state_options.scalar_type = step::scalar_type_of(options.precision);
        state_options.map_type = step::map_type_of(options.precision);
        state_options.freeze = options.freeze;
        state_options.optimizer = layout.optimizer;
        state_options.zero_stage = plan.zero_stage;
        state_options.mesh = &mesh;
        state_options.fill = options.fill;
        state_options.layers = step::layers_of_stage(
            plan, mesh.here.pipeline_stage, layers::num_layers(table));
        step::TrainingState state(table, state_options);

        loader::LoaderOptions loading =
            step::loader_options(config, state.model());
        loading.global_batch_size = options.global_batch_size;
        loading.data_parallel_size = data;
        loading.data_parallel_rank = mesh.here.data_parallel_rank;
        loading.micro_batch_size = plan.micro_batch_size;
        loading.batch_norm_rule = plan.batch_norm_rule();
        loading.own_rows = step::own_rows(mesh, state.model().max_stride());
        LabelledImages source(loading, kClasses, options.short_size,
                              options.short_every);

        step::Trainer::Options training;
        training.schedule = {config.hyp, 10, 100, options.global_batch_size,
                             false};
        training.gains = loss::scale_gains(
            config.hyp, static_cast<int64_t>(state.model().levels().size()),
            kClasses, std::max(options.height, options.width), 0);
        training.plan = plan;
        std::unique_ptr<step::Teacher> teacher;
        if (!options.teacher.empty()) {
          teacher = std::make_unique<step::Teacher>(
              std::make_unique<model::LayerGraph>(
                  layers::load_model_table(options.teacher), kClasses,
                  state.scalar_type(),
                  /*seed=*/77));
          training.teacher = teacher.get();
        }
        step::Trainer trainer(training, state, mesh);
        for (int step = 0; step < options.steps; ++step) {
          const step::StepResult result = trainer.train_step(source.next(), {});
          HEADROOM_CHECK(result.committed, "step " + std::to_string(step));
          const std::lock_guard lock(mutex);
          auto& peak = run.peak_bytes[static_cast<size_t>(rank)];
          peak = std::max(
              peak, result.measured_peak_bytes[static_cast<size_t>(rank)]);
          if (rank != 0) continue;
          run.loss.push_back(result.loss);
          run.gradient_norm.push_back(result.gradient_norm);
          run.skipped.push_back(result.lowered_scale);
          run.optimizer_steps += result.optimizer_stepped ? 1 : 0;
        }
        run.bytes[static_cast<size_t>(rank)] = {
            mesh.pipeline->bytes(), mesh.data->bytes(), mesh.spatial->bytes(),
            mesh.replicas->bytes(), mesh.statistics_bytes()};
        auto collected = collect_state(state, mesh);
        if (rank == 0) run.state = std::move(collected);
      },
      rank_options);
  return run;
}

}  // namespace headroom
