// Networks whose head has no anchors (YOLOv5u, YOLOv8) equal the reference's:
// their state, their raw heads and their boxes.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/base/head_fields.h"
#include "tests/support/parity.h"
#include "tests/worker/model/forward_cases.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

constexpr int64_t kClasses = 80;

// "v8n", "v5un", "v5u6n" as the vectors name networks.
layers::ModelTable table_of(const std::string& network) {
  const std::string size = network.substr(network.size() - 1);
  if (network.starts_with("v8")) {
    std::ifstream file(HEADROOM_SOURCE_DIR "/tests/support/models/yolov8.yaml");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    return layers::parse_model_table(text, "yolov8" + size + ".yaml");
  }
  const bool has_four_levels = network.starts_with("v5u6");
  layers::ModelTable table =
      layers::load_model_table("yolov5" + size + (has_four_levels ? "6" : ""));
  table.anchors.clear();
  table.layers.back().args = {"nc"};
  return table;
}

// The raw map of each level as the reference has it: distances, then classes.
std::vector<at::Tensor> raw_maps(const std::vector<at::Tensor>& heads) {
  std::vector<at::Tensor> maps;
  const size_t levels = heads.size() / 2;
  for (size_t level = 0; level < levels; ++level) {
    maps.push_back(at::cat({heads[level], heads[levels + level]}, 1));
  }
  return maps;
}

// Boxes [N, places, 5 + classes] as the reference has them: [N, 4 + classes,
// places].
at::Tensor decoded_as_reference(const at::Tensor& rows) {
  return at::cat({rows.narrow(2, 0, kBoxFields),
                  rows.narrow(2, kFirstClass, rows.size(2) - kFirstClass)},
                 2)
      .transpose(1, 2);
}

class PlaceNetworks : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!parity_present()) GTEST_SKIP() << kParityMissing;
    at::set_num_threads(1);
  }
};

TEST_P(PlaceNetworks, StateAndCountsEqualTheReference) {
  static const nlohmann::json kAll = load_parity_json("u/architecture.json");
  const nlohmann::json& expected = kAll.at(GetParam());
  const layers::ModelTable table = table_of(GetParam());
  LayerGraph graph(table, kClasses, at::kFloat, 0);
  size_t next = 0;
  int64_t constants = 0;
  for (const NamedTensor& entry : graph.state()) {
    if (entry.name.ends_with("num_batches_tracked")) continue;
    const nlohmann::json& wanted = expected.at("state").at(next++);
    EXPECT_EQ(entry.name, wanted[0].get<std::string>());
    EXPECT_EQ(entry.tensor->sizes().vec(),
              wanted[1].get<std::vector<int64_t>>())
        << entry.name;
    if (entry.name.ends_with("dfl.conv.weight"))
      constants += entry.tensor->numel();
  }
  EXPECT_EQ(next, expected.at("state").size());
  EXPECT_EQ(std::ssize(graph.state()), expected.at("state_entries"));
  int64_t parameters = 0;
  double multiply_adds = 0;
  for (const layers::LayerCost& layer : layers::layer_costs(table)) {
    parameters += layer.parameters;
    multiply_adds += layer.multiply_adds_per_pixel;
  }
  EXPECT_EQ(parameters + constants, expected.at("params"));
  EXPECT_NEAR(2 * multiply_adds * 640 * 640 / 1e9,
              expected.at("gflops_640_conv").get<double>(), 0.01);
  EXPECT_EQ(std::ssize(graph.batch_norms()), expected.at("bn_layers"));
}

TEST_P(PlaceNetworks, TrainingForward) {
  static const nlohmann::json kAll = load_parity_json("u/forward_family.json");
  const at::NoGradGuard no_grad;
  const nlohmann::json& expected = kAll.at(GetParam());
  const auto shape = expected.at("input").get<std::vector<int64_t>>();
  const bool is_small = std::string(GetParam()).ends_with("n");
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    if (type == at::kFloat && !is_small) continue;  // to save time
    LayerGraph graph(table_of(GetParam()), kClasses, type, 0);
    fill_model(graph.state());
    const auto heads = raw_maps(
        graph.forward(rule_input(expected.at("image_tag").get<std::string>(),
                                 shape[0], shape[2], shape[3], type),
                      training_context(shape[0], at::Tensor())));
    const double tolerance =
        type == at::kDouble
            ? 1e-10
            : 10 * expected.at("f32_vs_f64").at("rel_l2").get<double>();
    ASSERT_EQ(heads.size(), expected.at("train_raw").size());
    for (size_t level = 0; level < heads.size(); ++level) {
      SCOPED_TRACE("level " + std::to_string(level));
      expect_summary(heads[level],
                     expected.at("train_raw").at(std::to_string(level)),
                     tolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PlaceNetworks,
                         testing::Values("v5un", "v5us", "v5um", "v5ul", "v5ux",
                                         "v5u6n", "v5u6s", "v5u6m", "v5u6l",
                                         "v5u6x", "v8n", "v8s", "v8m", "v8l",
                                         "v8x"),
                         [](const auto& model) {
                           return std::string(model.param);
                         });

class PlaceForward : public testing::TestWithParam<const char*> {};

// The statistics are those that a first pass over images would leave.
TEST_P(PlaceForward, RawHeadsAndBoxes) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const at::NoGradGuard no_grad;
  const nlohmann::json expected =
      load_parity_json("u/forward.json").at("cases").at(GetParam());
  const auto network = expected.at("model").get<std::string>();
  const auto shape = expected.at("input").get<std::vector<int64_t>>();
  LayerGraph graph(table_of(network), kClasses, at::kDouble, 0);
  fill_model(graph.state());
  const at::Tensor images =
      rule_input(expected.at("image_tag").get<std::string>(), shape[0],
                 shape[2], shape[3], at::kDouble);
  const auto expect_maps = [&](const std::string& pass,
                               const std::vector<at::Tensor>& heads,
                               double tolerance) {
    const auto maps = raw_maps(heads);
    for (size_t level = 0; level < maps.size(); ++level) {
      SCOPED_TRACE(pass + " level " + std::to_string(level));
      expect_summary(maps[level],
                     expected.at(pass + "_raw").at(std::to_string(level)),
                     tolerance);
    }
  };
  at::Tensor sums = at::zeros({graph.batch_norm_sums_size()}, at::kDouble);
  expect_maps("train", graph.forward(images, training_context(shape[0], sums)),
              1e-10);
  expect_maps("eval", graph.forward(images, StepContext{}), 1e-11);

  const auto statistics =
      load_parity_tensors("u/bn_calibrated_" + network + ".safetensors");
  for (const NamedTensor& entry : graph.state()) {
    const auto found = statistics.tensors.find(entry.name);
    if (found != statistics.tensors.end()) entry.tensor->copy_(found->second);
  }
  const auto heads = graph.forward(images, StepContext{});
  expect_maps("evalcal", heads, 1e-10);
  expect_summary(decoded_as_reference(graph.decode(heads)),
                 expected.at("evalcal_decoded"), 1e-10);
}

INSTANTIATE_TEST_SUITE_P(Cases, PlaceForward,
                         testing::Values("v5un_b1", "v5un_b2", "v8n_b1",
                                         "v8n_b2"),
                         [](const auto& one) {
                           return std::string(one.param);
                         });

}  // namespace
}  // namespace headroom::model
