// A model that YOLOv5 trained has the same metrics and the same boxes when it
// is validated here.
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

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

class TrainedModel : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(bccd())) {
      GTEST_SKIP() << "no ../shared/datasets/bccd";
    }
    if (!parity_present()) GTEST_SKIP() << "no ../shared/parity";
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
    config.cfg = "yolov5n";
    config.task = task;
    config.image_height = config.image_width = size;
    config.loader_threads = 2;
    setup->inputs = step::read_data(config);
    setup->model = std::make_unique<model::LayerGraph>(
        setup->inputs.table, setup->inputs.num_classes(), at::kFloat, 0);
    const weights::LoadReport report = weights::load_weights(
        parity_path("weights/bccd_v5n.safetensors"), *setup->model, {});
    EXPECT_EQ(report.transferred, 349);
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

TEST_F(TrainedModel, HasTheMetricsThatYolov5Measures) {
  std::ifstream file(parity_path("weights/bccd_v5n_metrics.json"));
  const nlohmann::json expected = nlohmann::json::parse(file);
  const auto communicator = collectives::make_single_communicator();
  for (const auto& [task, size] : std::vector<std::pair<std::string, int64_t>>{
           {"val", 320}, {"test", 320}, {"val", 256}}) {
    const std::string name = task + "_" + std::to_string(size);
    SCOPED_TRACE(name);
    const auto setup = set_up(task, size);
    step::ReplicaForward replica(*setup->model, *communicator, at::kFloat);
    const ValidationResult result = validate(replica.network, *setup->loader,
                                             *communicator, setup->options);
    const nlohmann::json& metrics = expected.at(name);
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

TEST_F(TrainedModel, FindsTheBoxesThatYolov5Finds) {
  std::ifstream file(parity_path("weights/bccd_v5n_val_320_predictions.json"));
  std::map<std::string, std::vector<ExpectedBox>> expected;
  for (const auto& row : nlohmann::json::parse(file)) {
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
        if (box.score <= 0.1) continue;
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

}  // namespace
}  // namespace headroom::validation
