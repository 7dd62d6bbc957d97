// Training steps of heads without anchors equal the reference trainer's: the
// network, assignment and loss, the gradient divided by the sum of the weights,
// the optimizer and the averages, as Trainer runs them.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/named_values.h"
#include "tests/support/parity.h"
#include "tests/support/run_ranks.h"
#include "worker/step/trainer.h"

namespace headroom::step {
namespace {

constexpr int64_t kImages = 4, kSide = 128, kClasses = 3;

class Reference {
 public:
  explicit Reference(const nlohmann::json& scenario) : scenario_(scenario) {
    optimizer_ =
        value_in(configs::kOptimizers, scenario["optimizer"].get<std::string>())
            .value();
    const weights::Safetensors tensors =
        load_parity_tensors("training.safetensors");
    for (const char* number : {"0", "1"}) {
      const at::Tensor labels = tensors.at(std::string("labels.batch") + number)
                                    .to(at::kDouble)
                                    .contiguous();
      loader::Batch batch;
      batch.global_size = kImages;
      batch.micro_batches = {{0, kImages}};
      batch.images =
          rule_image(std::string("T") + number, kImages, kSide, kSide)
              .permute({0, 2, 3, 1})
              .contiguous();
      batch.image_height = batch.image_width = kSide;
      for (int64_t i = 0; i < labels.size(0); ++i) {
        const double* row = labels[i].const_data_ptr<double>();
        batch.labels.push_back({static_cast<int64_t>(row[0]),
                                static_cast<int64_t>(row[1]), row[2], row[3],
                                row[4], row[5]});
      }
      batches_.push_back(std::move(batch));
    }
  }

  TrainingStateOptions state_options(at::ScalarType type) const {
    TrainingStateOptions options;
    options.num_classes = kClasses;
    options.scalar_type = type;
    options.optimizer = optimizer_;
    options.fill = [](model::LayerGraph& model) { fill_model(model.state()); };
    return options;
  }

  StepOptions step_options() const {
    StepOptions options;
    optim::ScheduleOptions& schedule = options.schedule;
    schedule.hyp.lr0 = scenario_["lr0"];
    schedule.hyp.lrf = 0.01;
    schedule.hyp.momentum = scenario_["momentum"];
    schedule.hyp.weight_decay = scenario_["weight_decay"];
    schedule.hyp.warmup_bias_lr = scenario_["warmup_bias_lr"];
    schedule.warms_momentum = optimizer_ == optim::OptimizerKind::kSgd;
    schedule.epochs = scenario_["epochs"];
    schedule.steps_per_epoch = scenario_["batches_per_epoch"];
    schedule.global_batch_size = schedule.nominal_batch_size = kImages;
    schedule.short_warmup = schedule.lr_of_epoch = true;
    options.gains.num_classes = kClasses;
    options.plan.micro_batch_size = options.plan.batch_norm_group_size =
        kImages;
    options.plan.stage_begins = {0};
    return options;
  }

  const loader::Batch& batch_of(const nlohmann::json& iteration) {
    loader::Batch& batch = batches_[iteration["batch"].get<size_t>()];
    batch.step = iteration["ni"];
    batch.epoch = iteration["epoch"];
    return batch;
  }

 private:
  const nlohmann::json& scenario_;
  optim::OptimizerKind optimizer_;
  std::vector<loader::Batch> batches_;
};

void expect_relative(double actual, double expected, double tolerance,
                     const std::string& what) {
  EXPECT_NEAR(actual, expected, tolerance * std::abs(expected)) << what;
}

// [sum, sum of magnitudes] of each tensor.
void expect_state(model::LayerGraph& model, const nlohmann::json& expected,
                  double tolerance, const std::string& what) {
  size_t compared = 0;
  for (const model::NamedTensor& entry : model.state()) {
    if (!expected.contains(entry.name)) continue;
    ++compared;
    const at::Tensor values = entry.tensor->detach().to(at::kDouble);
    const double magnitude = expected[entry.name][1];
    EXPECT_NEAR(values.sum().item<double>(),
                expected[entry.name][0].get<double>(), tolerance * magnitude)
        << what << " " << entry.name;
    EXPECT_NEAR(values.abs().sum().item<double>(), magnitude,
                tolerance * magnitude)
        << what << " " << entry.name;
  }
  EXPECT_GE(compared, expected.size() - 1) << "all but the constant bins";
}

void follow(const std::string& name, const std::string& cfg) {
  at::set_num_threads(1);  // the reference's run had one thread
  const nlohmann::json all = load_parity_json("u/training.json");
  const nlohmann::json& scenario = all[name];
  run_ranks(1, [&](int, collectives::Communicator& world) {
    collectives::Mesh mesh(world, plan::ParallelLayout());
    Reference reference(scenario);
    TrainingStateOptions options = reference.state_options(at::kDouble);
    options.mesh = &mesh;
    TrainingState state(layers::load_model_table(cfg), options);
    Trainer trainer(reference.step_options(), state, mesh);
    for (const nlohmann::json& iteration : scenario["iterations"]) {
      const int64_t step = iteration["ni"];
      const std::string what = name + " step " + std::to_string(step);
      const StepResult result =
          trainer.train_step(reference.batch_of(iteration), {});
      ASSERT_TRUE(result.committed && result.optimizer_stepped) << what;
      const double tolerance = step < 5 ? 1e-9 : 1e-4;
      expect_relative(result.loss, iteration["loss"], tolerance, what);
      for (size_t i = 0; i < kNumLossTerms; ++i) {
        expect_relative(result.terms[i], iteration["items"][i], 10 * tolerance,
                        what + " term " + std::to_string(i));
      }
      expect_relative(result.gradient_norm, iteration["grad_norm_before_clip"],
                      100 * tolerance, what + " gradient norm");
      const std::string number = std::to_string(step + 1);
      if (!scenario["after_step"].contains(number)) continue;
      const double of_state = step == 0 ? 1e-10 : step == 4 ? 1e-8 : 1e-3;
      const nlohmann::json& after = scenario["after_step"][number];
      expect_state(state.model(), after["model"], of_state, what + " model");
      expect_state(state.average_model(), after["ema"], of_state,
                   what + " average");
    }
  });
}

TEST(PlaceTrainingParity, OfYolov5uWithSgd) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  follow("v5u_sgd", "yolov5nu");
}

TEST(PlaceTrainingParity, OfYolov8WithSgd) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  follow("v8_sgd", "yolov8n");
}

TEST(PlaceTrainingParity, OfYolov8WithAdamW) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  follow("v8_auto", "yolov8n");
}

}  // namespace
}  // namespace headroom::step
