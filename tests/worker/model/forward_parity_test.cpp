// Forward passes of models that are filled with fixed values give the
// reference's outputs. They use one thread, as in the reference's runs.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/support/parity.h"
#include "tests/worker/model/forward_cases.h"
#include "worker/model/conv_block.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

const nlohmann::json& forward_json() {
  static const nlohmann::json kJson = load_parity_json("forward.json");
  return kJson;
}

const weights::Safetensors& tensors_of(const std::string& file) {
  static std::map<std::string, weights::Safetensors> loaded;
  auto found = loaded.find(file);
  if (found == loaded.end())
    found = loaded.emplace(file, load_parity_tensors(file)).first;
  return found->second;
}

std::unique_ptr<LayerGraph> filled_model(const std::string& model,
                                         at::ScalarType type) {
  at::set_num_threads(1);
  auto graph = std::make_unique<LayerGraph>(
      layers::load_model_table("yolov5" + model), 80, type, 0);
  fill_model(graph->state());
  return graph;
}

struct Case {
  const char* name;
  at::ScalarType type;
};

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.name) +
         (info.param.type == at::kDouble ? "_float64" : "_float32");
}

class ForwardParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!parity_present()) GTEST_SKIP() << kParityMissing;
    expected_ = forward_json().at("cases").at(GetParam().name);
    model_ = expected_.at("model").get<std::string>();
    const auto shape = expected_.at("input").get<std::vector<int64_t>>();
    images_ = rule_input(expected_.at("image_tag").get<std::string>(), shape[0],
                         shape[2], shape[3], GetParam().type);
    graph_ = filled_model(model_, GetParam().type);
  }

  // The tolerances of the vectors' README, section 10.
  double tolerance(const char* key, double float64) const {
    if (GetParam().type == at::kDouble) return float64;
    return 10 * expected_.at("f32_vs_f64").at(key).at("rel_l2").get<double>();
  }

  void expect_heads(const std::vector<at::Tensor>& heads,
                    const std::string& pass, double tolerance) const {
    const nlohmann::json& expected = expected_.at(pass + "_raw");
    ASSERT_EQ(heads.size(), expected.size());
    for (std::size_t level = 0; level < heads.size(); ++level) {
      SCOPED_TRACE(pass + " level " + std::to_string(level));
      expect_summary(heads[level], expected[level], tolerance);
      expect_tensor(pass + ".raw." + std::to_string(level), heads[level],
                    tolerance);
    }
  }

  void expect_decoded(const std::vector<at::Tensor>& heads,
                      const std::string& pass, double tolerance) const {
    SCOPED_TRACE(pass);
    const at::Tensor decoded = graph_->decode(heads);
    expect_summary(decoded, expected_.at(pass + "_decoded"), tolerance);
    expect_tensor(pass + ".decoded", decoded, tolerance);
  }

  // Whole tensors are stored for some cases.
  void expect_tensor(const std::string& name, const at::Tensor& tensor,
                     double tolerance) const {
    static const std::map<std::string, std::string> kStored = {
        {"v5n_b1", "forward_v5n_b1.safetensors"},
        {"v5n_b2", "forward_v5n_b2.safetensors"},
        {"v5s_b1", "forward_v5s_b1.safetensors"},
        {"v5n6_b1", "forward_v5n6_b1.safetensors"}};
    const auto found = kStored.find(GetParam().name);
    if (found == kStored.end()) return;
    const weights::Safetensors& file = tensors_of(found->second);
    const auto stored = file.tensors.find(name);
    if (stored == file.tensors.end()) return;
    const double storage =
        stored->second.scalar_type() == at::kFloat ? 1e-7 : 0;
    EXPECT_LE(relative_l2(tensor, stored->second), tolerance + storage) << name;
  }

  void use_calibrated_statistics() {
    const at::NoGradGuard no_grad;
    static const std::map<std::string, std::string> kCalibrated = {
        {"n", "bn_calibrated_v5n.safetensors"},
        {"s", "bn_calibrated_v5s.safetensors"},
        {"n6", "bn_calibrated_v5n6.safetensors"}};
    const weights::Safetensors& statistics = tensors_of(kCalibrated.at(model_));
    std::size_t replaced = 0;
    for (const NamedTensor& entry : graph_->state())
      if (statistics.tensors.count(entry.name) > 0) {
        entry.tensor->copy_(statistics.at(entry.name));
        ++replaced;
      }
    ASSERT_EQ(replaced, statistics.tensors.size());
  }

  // The tolerance of layers in float32. Only the deviation of the heads was
  // measured, in every pass; the largest of these is used.
  double tolerance_of_layers() const {
    double largest = 0;
    for (const auto& [pass, deviation] : expected_.at("f32_vs_f64").items())
      largest = std::max(largest, deviation.at("rel_l2").get<double>());
    return 10 * largest;
  }

  nlohmann::json expected_;
  std::string model_;
  at::Tensor images_;
  std::unique_ptr<LayerGraph> graph_;
};

TEST_P(ForwardParity, TrainingAndItsRunningStatistics) {
  at::Tensor sums = at::zeros({graph_->batch_norm_sums_size()}, at::kDouble);
  const auto heads =
      graph_->forward(images_, training_context(images_.size(0), sums));
  expect_heads(heads, "train", tolerance("train", 1e-10));

  const at::NoGradGuard no_grad;
  const nlohmann::json& after = expected_.at("train_bn_after");
  const double statistics_tolerance =
      GetParam().type == at::kDouble ? 1e-11 : 1e-4;
  for (const LayerGraph::BatchNorm& layer : graph_->batch_norms()) {
    // The rule by which a commit updates the running statistics. There is one
    // group here, so that its sums are its means.
    const at::Tensor slice =
        sums.narrow(0, layer.sums_offset, 2 * layer.channels)
            .view({2, layer.channels});
    const auto committed = [](const at::Tensor& running,
                              const at::Tensor& mean) {
      return (running.to(at::kDouble) * (1 - kBatchNormMomentum) +
              mean * kBatchNormMomentum)
          .sum()
          .item<double>();
    };
    const auto scale = static_cast<double>(layer.channels);
    const std::string mean_name = layer.name + ".running_mean";
    const std::string var_name = layer.name + ".running_var";
    EXPECT_NEAR(committed(*layer.running_mean, slice[0]),
                after.at("running_mean_sum").at(mean_name).get<double>(),
                statistics_tolerance * scale)
        << mean_name;
    EXPECT_NEAR(committed(*layer.running_var, slice[1]),
                after.at("running_var_sum").at(var_name).get<double>(),
                statistics_tolerance * scale)
        << var_name;
  }
}

TEST_P(ForwardParity, EvaluationWithRuleStatistics) {
  const at::NoGradGuard no_grad;
  const auto heads = graph_->forward(images_, StepContext{});
  const double tolerance = GetParam().type == at::kDouble ? 1e-11 : 1e-5;
  expect_heads(heads, "eval", tolerance);
  expect_decoded(heads, "eval", tolerance);
}

TEST_P(ForwardParity, EvaluationWithCalibratedStatistics) {
  const at::NoGradGuard no_grad;
  use_calibrated_statistics();
  const auto heads = graph_->forward(images_, StepContext{});
  expect_heads(heads, "evalcal", tolerance("cal", 1e-10));
  expect_decoded(heads, "evalcal", tolerance("cal_dec", 1e-10));
}

// The layers are run one by one, as a pipeline passes maps on.
TEST_P(ForwardParity, EveryLayer) {
  const at::NoGradGuard no_grad;
  const double tolerance =
      GetParam().type == at::kDouble ? 1e-9 : tolerance_of_layers();
  const auto head = static_cast<int>(graph_->num_layers()) - 1;
  graph_->keep_layers({0, head});
  std::vector<int> layers;
  for (int layer = 0; layer < head; ++layer) layers.push_back(layer);
  const auto expect_layers = [&](const std::string& pass,
                                 const StepContext& context) {
    const nlohmann::json& expected = expected_.at(pass + "_layers");
    const auto maps = graph_->forward_layers({}, images_, context, layers);
    ASSERT_EQ(maps.size(), expected.size());
    for (std::size_t layer = 0; layer < maps.size(); ++layer) {
      SCOPED_TRACE(pass + " layer " + std::to_string(layer));
      EXPECT_EQ(expected[layer].at("index"), layer);
      expect_summary(maps[layer], expected[layer], tolerance);
    }
  };
  const at::Tensor sums =
      at::zeros({graph_->batch_norm_sums_size()}, at::kDouble);
  expect_layers("train", training_context(images_.size(0), sums));
  expect_layers("eval", StepContext{});
  use_calibrated_statistics();
  expect_layers("evalcal", StepContext{});
}

// The reference's float32 runs, with different threads, layouts and kernels,
// differ from its float64 run. Ours may differ ten times as much.
TEST(ForwardNoise, OursIsTenTimesTheReferencesAtMost) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json noise = load_parity_json("noise.json")["results"];
  const weights::Safetensors& exact = tensors_of("forward_v5n_b2.safetensors");
  const auto worst = [&](const std::string& pass) {
    double largest = 0;
    for (const auto& [name, run] : noise.items())
      if (name.starts_with("f32"))
        largest = std::max(largest, run[pass]["rel_l2"].get<double>());
    return largest;
  };
  const at::NoGradGuard no_grad;
  const at::Tensor images = rule_input("A", 2, 128, 160, at::kFloat);
  const auto graph = filled_model("n", at::kFloat);
  at::Tensor sums = at::zeros({graph->batch_norm_sums_size()}, at::kDouble);
  const auto heads = graph->forward(images, training_context(2, sums));
  for (std::size_t level = 0; level < heads.size(); ++level) {
    EXPECT_LE(relative_l2(heads[level],
                          exact.at("train.raw." + std::to_string(level))),
              10 * worst("train") + 1e-7)
        << level;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ForwardParity,
    testing::Values(Case{"v5n_b2", at::kDouble}, Case{"v5n_b2", at::kFloat},
                    Case{"v5n_b1", at::kDouble}, Case{"v5n_b1", at::kFloat},
                    Case{"v5s_b2", at::kDouble}, Case{"v5s_b2", at::kFloat},
                    Case{"v5s_b1", at::kDouble}, Case{"v5s_b1", at::kFloat},
                    Case{"v5n6_b2", at::kDouble}, Case{"v5n6_b2", at::kFloat},
                    Case{"v5n6_b1", at::kDouble}, Case{"v5n6_b1", at::kFloat}),
    case_name);

class FamilyParity : public testing::TestWithParam<Case> {};

TEST_P(FamilyParity, TrainingForward) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const at::NoGradGuard no_grad;
  const nlohmann::json& expected =
      forward_json().at("family").at(GetParam().name);
  const auto shape = expected.at("input").get<std::vector<int64_t>>();
  const at::Tensor images =
      rule_input(expected.at("image_tag").get<std::string>(), shape[0],
                 shape[2], shape[3], GetParam().type);
  const auto graph = filled_model(GetParam().name, GetParam().type);
  const auto heads =
      graph->forward(images, training_context(shape[0], at::Tensor()));
  const double tolerance =
      GetParam().type == at::kDouble
          ? 1e-10
          : 10 * expected.at("f32_vs_f64").at("rel_l2").get<double>();
  ASSERT_EQ(heads.size(), expected.at("train_raw").size());
  for (std::size_t level = 0; level < heads.size(); ++level) {
    SCOPED_TRACE("level " + std::to_string(level));
    expect_summary(heads[level], expected.at("train_raw")[level], tolerance);
  }
}

std::vector<Case> family_cases() {
  std::vector<Case> cases;
  for (const char* model :
       {"n", "s", "m", "l", "x", "n6", "s6", "m6", "l6", "x6"})
    for (const at::ScalarType type : {at::kDouble, at::kFloat})
      cases.push_back({model, type});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, FamilyParity,
                         testing::ValuesIn(family_cases()), case_name);

}  // namespace
}  // namespace headroom::model
