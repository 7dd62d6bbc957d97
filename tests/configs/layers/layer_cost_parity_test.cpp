// Compares the costs of a table's layers with the reference's own counts.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "configs/layers/layer_cost.h"

namespace headroom::layers {
namespace {

// Returns null if the vectors are missing.
nlohmann::json parity(const std::string& name) {
  std::ifstream file(HEADROOM_SOURCE_DIR "/../shared/parity/" + name);
  if (!file) return nullptr;
  std::cout << "parity file used: " << name << "\n";
  return nlohmann::json::parse(file);
}

TEST(LayerCostParity, ParametersMultiplyAddsAndStrides) {
  const nlohmann::json models = parity("architecture.json");
  if (models.is_null()) GTEST_SKIP() << "no ../shared/parity";
  ASSERT_EQ(models.size(), 11u);
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    ModelTable table =
        load_model_table("yolov5" + name.substr(0, name.find('_')));
    table.num_classes = model.at("nc");
    const std::vector<LayerCost> layers = layer_costs(table);
    const nlohmann::json& expected = model.at("layers");
    ASSERT_EQ(layers.size(), expected.size());
    int64_t parameters = 0, norm_channels = 0, tensors = 0;
    double multiply_adds = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(layers[i].parameters, expected[i].at("params")) << i;
      parameters += layers[i].parameters;
      norm_channels += layers[i].norm_channels;
      tensors += layers[i].parameter_tensors;
      multiply_adds += layers[i].multiply_adds_per_pixel;
    }
    EXPECT_EQ(parameters, model.at("parameters"));
    EXPECT_EQ(tensors, model.at("n_parameters"));
    // Folding replaces the two values of a batch norm per channel by one bias.
    EXPECT_EQ(parameters - norm_channels, model.at("parameters_fused"));
    // The reference's figure is stored with six decimals.
    EXPECT_NEAR(2 * multiply_adds * 640 * 640 / 1e9,
                model.at("gflops_640_conv_only").get<double>(), 1e-6);
    const auto strides = model.at("strides").get<std::vector<double>>();
    for (size_t level = 0; level < strides.size(); ++level) {
      const auto layer = static_cast<size_t>(layers.back().inputs[level]);
      EXPECT_EQ(static_cast<double>(layers[layer].stride), strides[level]);
    }
  }
}

TEST(LayerCostParity, ImageSizes) {
  const nlohmann::json schedules = parity("schedules.json");
  if (schedules.is_null()) GTEST_SKIP() << "no ../shared/parity";
  const nlohmann::json& cases = schedules.at("imgsz_rule");
  ASSERT_EQ(cases.size(), 10u);
  for (const nlohmann::json& wanted : cases) {
    EXPECT_EQ(wanted.at("floor").get<int64_t>(),
              2 * wanted.at("stride").get<int64_t>());
    EXPECT_EQ(rounded_image_size(wanted.at("imgsz"), wanted.at("stride")),
              wanted.at("result"))
        << wanted;
  }
}

}  // namespace
}  // namespace headroom::layers
