// Loss and gradients through the whole network equal the reference's.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "configs/layers/model_table.h"
#include "tests/support/parity.h"
#include "tests/worker/loss/loss_cases.h"
#include "worker/model/layer_graph.h"

namespace headroom::loss {
namespace {

constexpr int64_t kImages = 2, kHeight = 128, kWidth = 160;

struct Tolerances {
  double loss, gradient;
};

void compare(const std::string& name, at::ScalarType scalar_type,
             const Tolerances& tolerances, const std::string& run) {
  at::set_num_threads(1);  // the reference's run had one thread
  const weights::Safetensors tensors = load_parity_tensors("loss.safetensors");
  const nlohmann::json figures =
      load_parity_json("loss.json")["network_v5n_nc80"][name];
  const nlohmann::json& expected = figures[run];

  model::LayerGraph graph(layers::load_model_table("yolov5n"), 80, scalar_type,
                          0);
  fill_model(graph.state());
  for (const model::NamedTensor& entry : graph.state())
    if (entry.is_parameter()) entry.tensor->requires_grad_(true);
  std::vector<LevelGrid> grids;
  for (const model::LayerGraph::Level& level : graph.levels()) {
    LevelGrid grid{kHeight / level.stride, kWidth / level.stride, {}};
    for (const auto& [w, h] : level.anchors)
      grid.anchors.emplace_back(w / static_cast<double>(level.stride),
                                h / static_cast<double>(level.stride));
    grids.push_back(grid);
  }
  model::StepContext context;
  context.training = true;
  context.groups = {{0, kImages, kImages, true}};
  const auto heads = graph.forward(
      rule_input("A", kImages, kHeight, kWidth, scalar_type), context);
  const auto targets = assign_targets(to_labels(tensors.at("labels." + name)),
                                      grids, 4, scalar_type);
  const DetectionLoss loss =
      detection_loss(heads, targets, count_all(kImages, targets),
                     to_gains(figures["hyp_used"], "P5", 80));
  loss.total.backward();

  const auto expect_relative = [&](double actual, const std::string& field) {
    const double wanted = expected[field];
    EXPECT_NEAR(actual, wanted, tolerances.loss * wanted) << field;
  };
  expect_relative(loss.total.item<double>(), "loss");
  expect_relative(loss.items[0].item<double>(), "box");
  expect_relative(loss.items[1].item<double>(), "obj");
  expect_relative(loss.items[2].item<double>(), "cls");

  double squares = 0;
  int full_tensors = 0;
  for (const model::NamedTensor& entry : graph.state()) {
    if (!entry.is_parameter()) continue;
    const at::Tensor gradient = entry.tensor->grad().to(at::kDouble);
    const double norm = gradient.norm().item<double>();
    const double wanted = expected["grad_l2"][entry.name];
    EXPECT_NEAR(norm, wanted, tolerances.gradient * wanted) << entry.name;
    squares += norm * norm;
    const auto full = tensors.tensors.find(name + ".grad." + entry.name);
    if (full == tensors.tensors.end()) continue;
    ++full_tensors;
    EXPECT_LT(relative_l2(gradient, full->second), tolerances.gradient)
        << entry.name;
  }
  EXPECT_EQ(full_tensors, 11);
  const double total = expected["grad_total_l2"];
  EXPECT_NEAR(std::sqrt(squares), total, tolerances.gradient * total);
}

TEST(NetworkLossParityTest, Float64) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  compare("net", at::kDouble, {1e-11, 1e-10}, "f64");
  compare("net_one_image_empty", at::kDouble, {1e-11, 1e-10}, "f64");
}

// The reference's runs of `type` differ in threads, layouts and kernels.
// Returns ten times their largest difference from the reference's float64 run.
// The vectors allow this for forward passes.
Tolerances measured_noise(const std::string& type) {
  Tolerances worst{0, 0};
  int runs = 0;
  const nlohmann::json noise = load_parity_json("noise.json");
  for (const auto& [name, run] : noise["results"].items()) {
    if (!name.starts_with(type)) continue;
    ++runs;
    worst.loss = std::max(worst.loss, run["loss_rel"].get<double>());
    worst.gradient = std::max(
        worst.gradient, run["grad_rel_l2_max_over_tensors"].get<double>());
  }
  EXPECT_GE(runs, 2) << type;
  return {10 * worst.loss, 10 * worst.gradient};
}

TEST(NetworkLossParityTest, Float32IsWithinTheReferencesOwnNoise) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const Tolerances noise = measured_noise("f32");
  EXPECT_LT(noise.loss, 1e-5);
  EXPECT_LT(noise.gradient, 2e-3);
  compare("net", at::kFloat, noise, "f64");
}

TEST(NetworkLossParityTest, Float64IsWithinTheReferencesOwnNoise) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  compare("net", at::kDouble, measured_noise("f64"), "f64");
}

TEST(NetworkLossParityTest, Float32) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  compare("net", at::kFloat, {1e-5, 2e-3}, "f32");
  compare("net_one_image_empty", at::kFloat, {1e-5, 2e-3}, "f32");
}

}  // namespace
}  // namespace headroom::loss
