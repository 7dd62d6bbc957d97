// The ten models of the family equal the reference's tables.
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/support/parity.h"
#include "worker/model/layer_graph.h"
#include "worker/model/model_state.h"

namespace headroom::model {
namespace {

class ArchitectureParity : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!parity_present()) GTEST_SKIP() << kParityMissing;
    static const nlohmann::json kAll = load_parity_json("architecture.json");
    expected_ = kAll.at(GetParam());
    const std::string model =
        std::string(GetParam()).substr(0, std::string(GetParam()).find("_"));
    graph_ = std::make_unique<LayerGraph>(
        layers::load_model_table("yolov5" + model),
        expected_.at("nc").get<int64_t>(), at::kFloat, 0);
  }

  void expect_state();
  void expect_levels();
  void expect_fresh_statistics();
  void expect_fresh_head_bias();

  nlohmann::json expected_;
  std::unique_ptr<LayerGraph> graph_;
};

void ArchitectureParity::expect_state() {
  const NamedTensors state = graph_->state();
  const nlohmann::json& entries = expected_.at("state");
  ASSERT_EQ(state.size(), entries.size());
  std::vector<std::string> parameters;
  int64_t num_parameters = 0;
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(state[i].name, entries[i][0].get<std::string>());
    EXPECT_EQ(state[i].tensor->sizes().vec(),
              entries[i][1].get<std::vector<int64_t>>())
        << state[i].name;
    EXPECT_EQ(state[i].tensor->scalar_type() == at::kLong ? "int64" : "float32",
              entries[i][2].get<std::string>())
        << state[i].name;
    EXPECT_EQ(state[i].tensor->requires_grad(), state[i].is_parameter());
    if (!state[i].is_parameter()) continue;
    parameters.push_back(state[i].name);
    num_parameters += state[i].tensor->numel();
  }
  EXPECT_EQ(num_parameters, expected_.at("parameters").get<int64_t>());
  // The vectors list the order for one model; the others follow the same rule.
  if (expected_.at("parameter_order").is_array()) {
    EXPECT_EQ(parameters,
              expected_.at("parameter_order").get<std::vector<std::string>>());
  }
}

void ArchitectureParity::expect_levels() {
  const auto& levels = graph_->levels();
  const auto strides = expected_.at("strides").get<std::vector<double>>();
  const auto anchors =
      expected_.at("anchors_px")
          .get<std::vector<std::vector<std::pair<double, double>>>>();
  ASSERT_EQ(levels.size(), strides.size());
  for (std::size_t i = 0; i < levels.size(); ++i) {
    EXPECT_EQ(static_cast<double>(levels[i].stride), strides[i]);
    EXPECT_EQ(levels[i].anchors, anchors[i]);
  }
  EXPECT_EQ(static_cast<double>(graph_->max_stride()), strides.back());
  EXPECT_EQ(graph_->num_layers(),
            static_cast<int64_t>(expected_.at("layers").size()));

  std::vector<float> stored;
  for (const auto& level : expected_.at("anchors_buffer"))
    for (const auto& anchor : level)
      for (const auto& side : anchor) stored.push_back(side.get<float>());
  for (const NamedTensor& entry : graph_->state()) {
    if (entry.name.find("anchors") == std::string::npos) continue;
    EXPECT_TRUE(at::equal(entry.tensor->flatten(), at::tensor(stored)));
  }
}

void ArchitectureParity::expect_fresh_statistics() {
  const nlohmann::json& fresh = expected_.at("fresh_model");
  const auto range = [&fresh](const char* key) {
    return fresh.at(key).get<std::vector<double>>();
  };
  for (const NamedTensor& entry : graph_->state()) {
    const auto is = [&entry](const char* part) {
      return entry.name.find(part) != std::string::npos;
    };
    if (is("num_batches_tracked")) {
      EXPECT_EQ(entry.tensor->item<int64_t>(),
                fresh.at("num_batches_tracked")[0].get<int64_t>());
    }
    for (const char* statistic : {"running_mean", "running_var"}) {
      if (!is(statistic)) continue;
      const auto expected =
          range((std::string(statistic) + "_min_max").c_str());
      EXPECT_EQ(entry.tensor->min().item<double>(), expected[0]);
      EXPECT_EQ(entry.tensor->max().item<double>(), expected[1]);
    }
  }
}

void ArchitectureParity::expect_fresh_head_bias() {
  const nlohmann::json& added = expected_.at("head_bias_added_at_init");
  std::map<std::string, at::Tensor> tensors;
  for (const NamedTensor& entry : graph_->state())
    tensors[entry.name] = *entry.tensor;
  const std::string head =
      "model." + std::to_string(graph_->num_layers() - 1) + ".m.";
  const int64_t fields = 5 + graph_->num_classes();
  for (std::size_t level = 0; level < graph_->levels().size(); ++level) {
    const std::string name = head + std::to_string(level);
    const at::Tensor drawn = uniform_values(
        {0, name + ".bias"}, {3, fields},
        kaiming_bound(tensors.at(name + ".weight").size(1)), at::kFloat);
    const at::Tensor prior =
        (tensors.at(name + ".bias").view({3, fields}) - drawn).to(at::kDouble);
    const nlohmann::json& expected = added.at(
        "P" +
        std::to_string(std::lround(std::log2(graph_->levels()[level].stride))));
    const auto greatest_error = [&prior](int64_t begin, int64_t count,
                                         double value) {
      return (prior.narrow(1, begin, count) - value).abs().max().item<double>();
    };
    EXPECT_EQ(greatest_error(0, 4, 0), 0);
    EXPECT_LT(greatest_error(4, 1, expected.at("obj_add").get<double>()), 1e-6);
    EXPECT_LT(
        greatest_error(5, fields - 5, expected.at("cls_add").get<double>()),
        1e-6);
  }
}

// One test per model: drawing the weights of the largest takes seconds.
TEST_P(ArchitectureParity, AFreshModelIsTheReferences) {
  expect_state();
  expect_levels();
  expect_fresh_statistics();
  expect_fresh_head_bias();
}

INSTANTIATE_TEST_SUITE_P(Models, ArchitectureParity,
                         testing::Values("n", "s", "m", "l", "x", "n6", "s6",
                                         "m6", "l6", "x6", "s_nc3"));

}  // namespace
}  // namespace headroom::model
