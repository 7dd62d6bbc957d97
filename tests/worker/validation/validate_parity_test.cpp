// A model that a reference trained has the same metrics and the same boxes when
// it is validated here.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <tuple>

#include "tests/support/parity.h"
#include "worker/data/loader/loader.h"
#include "worker/step/run_data.h"
#include "worker/validation/validate.h"
#include "worker/weights/weights.h"

namespace headroom::validation {
namespace {

namespace fs = std::filesystem;

fs::path bccd() {
  return fs::path(HEADROOM_SOURCE_DIR) / "../shared/datasets/bccd/data.yaml";
}

// A network that the reference trained, with what the reference found with it.
struct Trained {
  std::string weights, metrics, predictions;  // files of the parity folder
  std::string cfg;                            // empty if the weights name it
  int64_t tensors = 0;
  // The members of the metrics, the split and the size of the images.
  std::vector<std::tuple<std::string, std::string, int64_t>> measured;
  double least_score = 0;  // boxes below it are not compared
  // Whether the reference cuts boxes before it compares them with labels.
  bool clip_boxes = true;
};
void PrintTo(const Trained& trained, std::ostream* out) {
  *out << trained.weights;
}

Trained with_anchors() {
  return {"weights/bccd_v5n.safetensors",
          "weights/bccd_v5n_metrics.json",
          "weights/bccd_v5n_val_320_predictions.json",
          "yolov5n",
          349,
          {{"/val_320", "val", 320},
           {"/test_320", "test", 320},
           {"/val_256", "val", 256}},
          0.1};
}
Trained without_anchors() {
  return {"u/weights/bccd_slim8.pt",
          "u/weights/bccd_slim8_metrics.json",
          "u/weights/bccd_slim8_val_320_predictions.json",
          "",
          355,
          {{"/best_pt/val_yolov5_rule", "val", 320},
           {"/best_pt/test_yolov5_rule", "test", 320}},
          0.2,
          false};
}

class TrainedModel : public ::testing::TestWithParam<Trained> {
 protected:
  void SetUp() override {
    if (!fs::exists(bccd())) {
      GTEST_SKIP() << "no ../shared/datasets/bccd";
    }
    if (!parity_present()) GTEST_SKIP() << "no ../shared/parity";
    if (!fs::exists(parity_path(GetParam().weights))) {
      GTEST_SKIP() << "no ../shared/parity/" << GetParam().weights;
    }
  }

  static nlohmann::json parity_json(const std::string& name) {
    return nlohmann::json::parse(std::ifstream(parity_path(name)));
  }

  struct Setup {
    configs::RunConfig config;
    step::RunData inputs;
    std::unique_ptr<model::LayerGraph> model;
    std::unique_ptr<loader::Loader> loader;
    ValidationOptions options;
  };

  static std::unique_ptr<Setup> set_up(const std::string& task, int64_t size) {
    auto setup = std::make_unique<Setup>();
    configs::RunConfig& config = setup->config;
    config.command = "val";
    config.data = bccd();
    config.cfg = GetParam().cfg;
    const std::string weights = parity_path(GetParam().weights);
    config.weights = weights;
    config.task = task;
    config.image_height = config.image_width = size;
    config.loader_threads = 2;
    setup->inputs = step::read_data(config);
    setup->model = std::make_unique<model::LayerGraph>(
        setup->inputs.table, setup->inputs.num_classes(), at::kFloat, 0);
    const weights::LoadReport report =
        weights::load_weights(weights, *setup->model, {});
    EXPECT_EQ(report.transferred, GetParam().tensors);
    loader::LoaderOptions options = step::loader_options(config, *setup->model);
    options.mode = loader::LoaderMode::kValidation;
    options.dataset = &*setup->inputs.validation;
    options.global_batch_size = options.micro_batch_size = 16;
    setup->loader = std::make_unique<loader::Loader>(options);
    setup->options.class_names = setup->inputs.class_names;
    setup->options.gains =
        loss::scale_gains(config.hyp, 3, setup->inputs.num_classes(), size, 0);
    return setup;
  }
};

TEST_P(TrainedModel, HasTheMetricsThatTheReferenceMeasures) {
  const nlohmann::json expected = parity_json(GetParam().metrics);
  const auto communicator = collectives::make_single_communicator();
  for (const auto& [name, task, size] : GetParam().measured) {
    SCOPED_TRACE(name);
    const auto setup = set_up(task, size);
    setup->options.clip_boxes = GetParam().clip_boxes;
    step::ReplicaForward replica(*setup->model, *communicator, at::kFloat);
    const ValidationResult result = validate(replica.network, *setup->loader,
                                             *communicator, setup->options);
    const nlohmann::json& metrics =
        expected.at(nlohmann::json::json_pointer(name));
    EXPECT_NEAR(result.map50, metrics.at("map50").get<double>(), 0.005);
    EXPECT_NEAR(result.map, metrics.at("map").get<double>(), 0.005);
    EXPECT_NEAR(result.precision, metrics.at("precision").get<double>(), 0.01);
    EXPECT_NEAR(result.recall, metrics.at("recall").get<double>(), 0.01);
    for (size_t c = 0; c < result.classes.size(); ++c) {
      EXPECT_NEAR(result.classes[c].map,
                  metrics.at("map_per_class")[c].get<double>(), 0.01);
    }
  }
}

struct ExpectedBox {
  int category = 0;
  double x = 0, y = 0, w = 0, h = 0, score = 0;
  bool found = false;
};

TEST_P(TrainedModel, FindsTheBoxesThatTheReferenceFinds) {
  std::map<std::string, std::vector<ExpectedBox>> expected;
  for (const auto& row : parity_json(GetParam().predictions)) {
    const auto& box = row.at("bbox");
    expected[row.at("image_id").get<std::string>()].push_back(
        {row.at("category_id").get<int>(), box[0].get<double>(),
         box[1].get<double>(), box[2].get<double>(), box[3].get<double>(),
         row.at("score").get<double>()});
  }
  // Category numbers begin at one, or at zero if YOLOv5 had the names.
  int lowest = 1;
  for (const auto& [image, boxes] : expected) {
    for (const ExpectedBox& box : boxes)
      lowest = std::min(lowest, box.category);
  }

  const auto setup = set_up("val", 320);
  at::NoGradGuard no_grad;
  const auto communicator = collectives::make_single_communicator();
  step::ReplicaForward replica(*setup->model, *communicator, at::kFloat);
  int64_t confident = 0;
  int64_t missed = 0;
  for (int64_t b = 0; b < setup->loader->batches_per_epoch(); ++b) {
    const loader::Batch batch = setup->loader->next();
    const BatchDetections found = detect(
        *setup->model, replica.network.run(batch), batch, setup->options);
    for (size_t image = 0; image < found.images.size(); ++image) {
      const std::string stem =
          setup->inputs.validation->path(batch.samples[image]).stem();
      for (const ExpectedBox& box : expected[stem]) {
        if (box.score <= GetParam().least_score) continue;
        ++confident;
        bool matched = false;
        for (const metrics::Detection& d : found.images[image]) {
          matched |= d.class_index == box.category - lowest &&
                     std::abs(d.confidence - box.score) < 1e-3 &&
                     std::abs(d.box.x1 - box.x) < 0.05 &&
                     std::abs(d.box.y1 - box.y) < 0.05 &&
                     std::abs(d.box.x2 - box.x - box.w) < 0.05 &&
                     std::abs(d.box.y2 - box.y - box.h) < 0.05;
        }
        missed += matched ? 0 : 1;
      }
    }
  }
  EXPECT_GT(confident, 1000);
  EXPECT_EQ(missed, 0) << "of " << confident;
}

INSTANTIATE_TEST_SUITE_P(OfYolov5, TrainedModel,
                         ::testing::Values(with_anchors()));
INSTANTIATE_TEST_SUITE_P(OfYolov8, TrainedModel,
                         ::testing::Values(without_anchors()));

// The same batches with the same weights, whole and in parts: a part has only
// its own share of the sum by which the terms of a head without anchors are
// divided.
TEST(ValidationLosses, DoNotDependOnThePartsOfABatch) {
  if (!fs::exists(bccd())) GTEST_SKIP() << "no ../shared/datasets/bccd";
  configs::RunConfig config;
  config.command = "val";
  config.data = bccd();
  config.cfg = "yolov8n";
  config.image_height = config.image_width = 64;
  config.loader_threads = 1;
  const step::RunData inputs = step::read_data(config);
  model::LayerGraph model(inputs.table, inputs.num_classes(), at::kFloat, 0);
  const auto losses = [&](int64_t micro_batch) {
    loader::LoaderOptions options = step::loader_options(config, model);
    options.mode = loader::LoaderMode::kValidation;
    options.dataset = &*inputs.validation;
    options.global_batch_size = 16;
    options.micro_batch_size = micro_batch;
    loader::Loader loader(options);
    ValidationOptions wanted;
    wanted.confidence_threshold = 0.9;
    wanted.class_names = inputs.class_names;
    wanted.passes_per_batch = 16 / micro_batch;
    const auto communicator = collectives::make_single_communicator();
    step::ReplicaForward replica(model, *communicator, at::kFloat);
    return validate(replica.network, loader, *communicator, wanted).losses;
  };
  const LossTerms whole = losses(16), in_parts = losses(4);
  for (size_t term = 0; term < kNumLossTerms; ++term) {
    EXPECT_GT(whole[term], 0);
    EXPECT_NEAR(in_parts[term], whole[term], 1e-5 * whole[term]) << term;
  }
}

}  // namespace
}  // namespace headroom::validation
