// Networks in 8 bits: the simulation equals onnxruntime, ranges have the least
// error, the file has about a quarter of the size, and missing inputs are
// refused.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "tests/support/parity.h"
#include "tests/worker/export/onnxruntime_folder.h"
#include "worker/export/export_weights.h"
#include "worker/export/quantised_network.h"
#include "worker/export/value_ranges.h"
#include "worker/weights/weights.h"

namespace headroom::exporter {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ValueRanges, RareOutliersAreCutOffAndOthersKept) {
  std::vector<double> bins(2048, 0);
  for (size_t i = 0; i < 1024; ++i) bins[i] = 1000;  // values of 0 to 1
  bins.back() = 1000;                                // values of 2
  const ValueRange kept = least_error_range(0, 2, bins);
  EXPECT_NEAR(kept.high, 2, 0.05);
  std::fill(bins.begin(), bins.end(), 0);
  for (size_t i = 0; i < 20; ++i) bins[i] = 1e6;
  bins.back() = 0.01;
  const ValueRange cut = least_error_range(0, 2, bins);
  EXPECT_LT(cut.high, 0.1);
  EXPECT_EQ(cut.low, 0);
}

TEST(ValueRanges, TheRangeIncludesZero) {
  ValueRanges ranges;
  const at::Tensor values = at::arange(5, 6, 0.01);
  ranges.see_extremes("x", values);
  ranges.count("x", values);
  ranges.see_extremes("same", at::full({3}, -2.0));
  ranges.count("same", at::full({3}, -2.0));
  const auto all = ranges.ranges();
  EXPECT_EQ(all.at("x").low, 0);
  EXPECT_NEAR(all.at("x").high, 6, 0.1);
  EXPECT_EQ(all.at("same").low, -2);
  EXPECT_EQ(all.at("same").high, 0);
}

// Sets the statistics of batch norms to those of these images, so that no map
// of a deep network vanishes.
void give_statistics(model::LayerGraph& model, const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  model::StepContext context;
  context.training = true;
  context.groups = {{0, images.size(0), images.size(0), true}};
  context.batch_norm_sums =
      at::zeros({model.batch_norm_sums_size()}, at::kDouble);
  model.forward(images, context);
  for (const model::LayerGraph::BatchNorm& norm : model.batch_norms()) {
    const at::Tensor sums =
        context.batch_norm_sums
            .slice(0, norm.sums_offset, norm.sums_offset + 2 * norm.channels)
            .view({2, norm.channels});
    norm.running_mean->copy_(sums[0]);
    norm.running_var->copy_(sums[1]);
  }
}

class Quantised : public ::testing::Test {
 protected:
  ExportRequest request(const std::string& weights) const {
    ExportRequest made;
    made.weights = weights;
    made.include = {"onnx"};
    made.output = folder_.path() / "network";
    made.height = 96;
    made.width = 128;
    made.batch = 2;
    made.raw = true;
    made.int8 = true;
    made.calibration_images = [](int64_t, const auto& hand_over) {
      hand_over(images());
    };
    return made;
  }

  static at::Tensor images() {
    const at::Tensor x = rule_input("A", 2, 96, 128, at::kFloat);
    return x.mul(255).round().clamp(0, 255).div(255);
  }

  // Compares network.onnx, run by onnxruntime, with these heads.
  std::vector<Deviation> run(const std::vector<at::Tensor>& heads) const {
    std::vector<std::pair<std::string, at::Tensor>> expected = {
        {"x", images().contiguous()}};
    for (size_t i = 0; i < heads.size(); ++i) {
      expected.emplace_back(cat("level", i), heads[i].contiguous());
    }
    return folder_.run(expected);
  }

  const OnnxruntimeFolder folder_;
  const std::string weights_ = folder_.path() / "weights.safetensors";
};

// onnxruntime and the simulation compute with the same integers, but a value on
// the border between two integers may be rounded to either. After 60
// convolutions the difference at the heads is less than the error of 8 bits
// itself.
TEST_F(Quantised, OnnxruntimeGivesTheSimulatedResults) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  ExportRequest asked = request(parity_path("weights/bccd_v5n.safetensors"));
  asked.cfg = "yolov5n";
  std::vector<at::Tensor> simulated, exact;
  asked.after_int8 = [&](model::LayerGraph& model, const HeadsOfImages& heads) {
    const at::NoGradGuard no_grad;
    simulated = heads(images());
    exact = model.forward(images(), model::StepContext());
  };
  const std::string line = export_weights(asked).at(0);
  EXPECT_THAT(line, HasSubstr("ONNX, opset 17, int8, "));
  ASSERT_EQ(simulated.size(), 3u);
  double own = 0;
  for (size_t i = 0; i < 3; ++i) {
    own = std::max(own, (simulated[i] - exact[i]).abs().mean().item<double>());
  }
  EXPECT_GT(own, 1e-4) << "8 bits are no 32";
  EXPECT_LT(own, 0.5) << "and not far from them";

  const auto bytes =
      static_cast<double>(fs::file_size(folder_.path() / "network.onnx"));
  asked.int8 = false;
  asked.output = folder_.path() / "plain";
  export_weights(asked);
  const fs::path file = folder_.path() / "plain.onnx";
  const auto plain = static_cast<double>(fs::file_size(file));
  fs::remove(file);
  EXPECT_LT(bytes / plain, 0.32);

  const std::vector<Deviation> deviations = run(simulated);
  if (deviations.empty()) GTEST_SKIP() << kNoOnnxruntime;
  EXPECT_EQ(deviations.size(), 3u);
  for (const Deviation& one : deviations) {
    EXPECT_LT(one.mean, 0.1 * own) << one.output << ", largest " << one.worst;
  }
}

// This table has squeeze and excitation, shuffled channels and folding. It is
// not deep, because the error of 8 bits grows with every convolution of an
// untrained network.
constexpr const char* kFewOfEach = R"(
nc: 3
depth_multiple: 1.0
width_multiple: 1.0
anchors:
  - [10, 13,  16, 30,  33, 23]
backbone:
  - [-1, 1, Focus, [16, 3]]
  - [-1, 1, InvertedResidual, [24, 48, 3, 2, True, HS]]
  - [-1, 1, ShuffleNetV2, [48, 2]]
  - [-1, 1, ShuffleNetV2, [48, 1]]
  - [-1, 1, SqueezeExcitation, []]
head:
  - [-1, 1, GhostConv, [64, 3, 1]]
  - [[-1], 1, Detect, [nc, anchors]]
activation: )";

TEST_F(Quantised, EveryOperationAndActivation) {
  for (const char* activation : {"nn.SiLU()", "nn.Hardswish()", "nn.ReLU()",
                                 "nn.LeakyReLU(0.1)", "nn.Mish()"}) {
    const fs::path table =
        folder_.write("own.yaml", cat(kFewOfEach, activation));
    model::LayerGraph model(layers::load_model_table(table), 3, at::kFloat, 0);
    give_statistics(model, images());
    weights::save_weights(weights_, model.state(), {});
    ExportRequest asked = request(weights_);
    asked.cfg = table;
    std::vector<at::Tensor> simulated, exact;
    asked.after_int8 = [&](model::LayerGraph& opened,
                           const HeadsOfImages& heads) {
      const at::NoGradGuard no_grad;
      simulated = heads(images());
      exact = opened.forward(images(), model::StepContext());
    };
    export_weights(asked);
    const auto size = [](const at::Tensor& x) {
      return x.abs().mean().item<double>();
    };
    const double own = size(simulated[0] - exact[0]);
    const double spread = size(exact[0] - exact[0].mean({2, 3}, true));
    EXPECT_GT(own, 0) << activation;
    EXPECT_LT(own, 0.2 * spread) << activation;
    const std::vector<Deviation> deviations = run(simulated);
    if (deviations.empty()) GTEST_SKIP() << kNoOnnxruntime;
    EXPECT_LT(deviations.front().mean, 0.1 * own) << activation;
  }
}

TEST_F(Quantised, EveryShippedVariant) {
  const auto asked = [this](const std::string& name) {
    model::LayerGraph model(layers::load_model_table(name), 3, at::kFloat, 0);
    weights::save_weights(weights_, model.state(), {{"model", name}});
    return request(weights_);
  };
  for (const char* name : {"yolov5s-ghost", "yolov5s-mobilenetv3",
                           "yolov5s-shufflenetv2", "yolov8n"}) {
    EXPECT_NO_THROW(export_weights(asked(name))) << name;
  }
  const fs::path transposed =
      fs::path(HEADROOM_SOURCE_DIR) / "tests/support/models/many_modules.yaml";
  EXPECT_THAT(
      [&] { export_weights(asked(transposed)); },
      ThrowsMessage<Error>(HasSubstr(
          "operator ConvTranspose cannot be simulated: export without")));
}

TEST_F(Quantised, MissingInputsAreRefused) {
  model::LayerGraph model(layers::load_model_table("yolov5n"), 3, at::kFloat,
                          0);
  weights::save_weights(weights_, model.state(), {{"model", "yolov5n"}});
  ExportRequest asked = request(weights_);
  EXPECT_NO_THROW(export_weights(asked));
  asked.half = true;
  EXPECT_THAT([&] { export_weights(asked); },
              ThrowsMessage<Error>(HasSubstr("two types")));
  asked = request(weights_);
  asked.calibration_images = nullptr;
  EXPECT_THAT([&] { export_weights(asked); },
              ThrowsMessage<Error>(HasSubstr("give the data set: --data")));
  asked = request(weights_);
  asked.include = {"safetensors"};
  EXPECT_THAT([&] { export_weights(asked); },
              ThrowsMessage<Error>(HasSubstr("give --include onnx")));
}

}  // namespace
}  // namespace headroom::exporter
