// onnxruntime (PyPI) runs exported networks and gives the results of our own
// forward.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/text.h"
#include "tests/support/error_text.h"
#include "tests/support/parity.h"
#include "tests/worker/export/onnxruntime_folder.h"
#include "worker/export/export_weights.h"
#include "worker/export/onnx_network.h"
#include "worker/weights/weights.h"

namespace headroom::exporter {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OnnxTest : public ::testing::Test {
 protected:
  ExportRequest request(const std::string& name) const {
    ExportRequest made;
    made.weights = weights_;
    made.include = {"onnx"};
    made.output = folder_.path() / name;
    made.height = 128;
    made.width = 160;
    made.batch = 2;
    return made;
  }

  // Fills weights by the parity rule, and batch norms with calibrated
  // statistics, so that outputs vary strongly. Rounding grows to 1e-4 through
  // the layers.
  static void fill_lively(model::LayerGraph& model,
                          const std::string& calibration) {
    fill_model(model.state());
    const weights::Safetensors statistics = load_parity_tensors(calibration);
    for (const model::NamedTensor& entry : model.state()) {
      const auto found = statistics.tensors.find(entry.name);
      if (found != statistics.tensors.end()) {
        entry.tensor->copy_(found->second);
      }
    }
  }

  // Writes the weights, and keeps images with the results of float64. Returns
  // the deviation of our own float32, relative to max(1, |expected|).
  double write_model(const std::string& model_name, model::LayerGraph& model,
                     int64_t classes) {
    const at::NoGradGuard no_grad;
    weights::save_weights(weights_, model.state(), {{"model", model_name}});
    model::LayerGraph exact(layers::load_model_table(model_name), classes,
                            at::kDouble, 0);
    weights::load_weights(weights_, exact, {});
    const at::Tensor x = rule_input("A", 2, 128, 160, at::kFloat);
    const auto ours = outputs(model, x);
    reference_ = outputs(exact, x.to(at::kDouble));
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      at::Tensor& exactly = reference_[i].second;
      worst = std::max(worst,
                       ((ours[i].second - exactly) / exactly.abs().clamp_min(1))
                           .abs()
                           .max()
                           .item<double>());
      exactly = exactly.to(at::kFloat).contiguous();
    }
    reference_.emplace_back("x", x.contiguous());
    return worst;
  }

  static std::vector<std::pair<std::string, at::Tensor>> outputs(
      model::LayerGraph& model, const at::Tensor& images) {
    const auto heads = model.forward(images, model::StepContext());
    at::Tensor decoded = model.decode(heads);
    if (!model.has_anchors()) decoded = as_exported(decoded);
    std::vector<std::pair<std::string, at::Tensor>> all = {
        {"decoded", decoded}};
    for (size_t i = 0; i < heads.size(); ++i) {
      all.emplace_back("level" + std::to_string(i), heads[i]);
    }
    return all;
  }

  // Exports every form; every output is within `tolerance` of float64.
  void expect_within(double tolerance, size_t num_outputs = 8) const {
    ExportRequest asked = request("fixed");
    export_weights(asked);
    asked.output = folder_.path() / "raw";
    asked.raw = true;
    export_weights(asked);
    asked = request("dynamic");
    asked.dynamic = true;
    asked.batch = 1;
    export_weights(asked);
    asked.output = folder_.path() / "dynamic_raw";
    asked.raw = true;
    export_weights(asked);
    const std::vector<Deviation> deviations = folder_.run(reference_);
    if (deviations.empty()) GTEST_SKIP() << kNoOnnxruntime;
    EXPECT_EQ(deviations.size(), num_outputs);
    for (const auto& [network, output, worst, mean] : deviations) {
      EXPECT_LT(worst, tolerance) << network << " " << output;
      EXPECT_GE(worst, 0) << network << " " << output;
    }
  }

  OnnxruntimeFolder folder_;
  const fs::path weights_ = folder_.path() / "weights.safetensors";
  std::vector<std::pair<std::string, at::Tensor>> reference_;
};

TEST_F(OnnxTest, OnnxruntimeIsAsExactAsOurFloat32) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  model::LayerGraph model(layers::load_model_table("yolov5s"), 80, at::kFloat,
                          0);
  fill_lively(model, "bn_calibrated_v5s.safetensors");
  const double own = write_model("yolov5s", model, 80);
  EXPECT_THAT(export_weights(request("fixed")).at(0),
              HasSubstr("images 2x3x128x160 -> output0 2x1260x85"));
  expect_within(2 * own);
}

// The file has every convolution with its batch norm folded into it, and no
// other tensors of the state, as the reference's fused model.
TEST_F(OnnxTest, TheTensorsAreTheFusedModels) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  const nlohmann::json expected = load_parity_json("architecture.json")["n"];
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 80, at::kFloat, 0);
  OnnxHeadOptions options;
  options.output = OnnxOutput::kRaw;
  const OnnxGraph graph =
      with_head(make_onnx_body(table, model, options, {}), model, options);
  std::map<std::string, std::vector<int64_t>> tensors;
  for (const OnnxTensor& tensor : graph.tensors) {
    tensors[tensor.name] = tensor.dims;
  }
  int64_t parameters = 0;
  size_t compared = 0;
  for (const nlohmann::json& entry : expected["state_fused"]) {
    const auto name = entry[0].get<std::string>();
    if (name.ends_with(".anchors")) continue;
    ++compared;
    const auto dims = entry[1].get<std::vector<int64_t>>();
    EXPECT_EQ(tensors[name], dims) << name;
    int64_t elements = 1;
    for (const int64_t dim : dims) elements *= dim;
    parameters += elements;
  }
  EXPECT_EQ(compared + 1, expected["n_state_fused"].get<size_t>());
  EXPECT_EQ(parameters, expected["parameters_fused"].get<int64_t>());
}

TEST_F(OnnxTest, OnnxruntimeGivesOurResults) {
  model::LayerGraph model(layers::load_model_table("yolov5s"), 80, at::kFloat,
                          0);
  EXPECT_LT(write_model("yolov5s", model, 80), 1e-4);
  expect_within(1e-4);
}

TEST_F(OnnxTest, OnnxruntimeComputesEveryModule) {
  const std::string name =
      HEADROOM_SOURCE_DIR "/tests/support/models/many_modules.yaml";
  model::LayerGraph model(layers::load_model_table(name), 80, at::kFloat, 0);
  EXPECT_LT(write_model(name, model, 80), 1e-4);
  expect_within(1e-4, /*num_outputs=*/6);  // of two levels
}

TEST_F(OnnxTest, OnnxruntimeComputesATrainedNetwork) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  model::LayerGraph model(layers::load_model_table("yolov5n"), 3, at::kFloat,
                          0);
  weights::load_weights(parity_path("weights/bccd_v5n.safetensors"), model, {});
  EXPECT_LT(write_model("yolov5n", model, 3), 1e-4);
  expect_within(1e-4);
}

// Two families, in all sizes of input and with all outputs.
TEST_F(OnnxTest, OnnxruntimeComputesHeadsWithoutAnchors) {
  for (const char* name : {"yolov8n", "yolov5nu"}) {
    model::LayerGraph model(layers::load_model_table(name), 3, at::kFloat, 0);
    reference_.clear();
    EXPECT_LT(write_model(name, model, 3), 1e-4);
    EXPECT_THAT(export_weights(request("fixed")).at(0),
                HasSubstr("images 2x3x128x160 -> output0 2x7x420"));
    expect_within(1e-4, /*num_outputs=*/14);
  }
}

TEST_F(OnnxTest, AFileWithoutAnchorsSaysWhatOtherProgramsAsk) {
  const layers::ModelTable table = layers::load_model_table("yolov8n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  OnnxHeadOptions options;
  options.batch = 4;
  const OnnxBody body = make_onnx_body(table, model, options,
                                       {{"names", R"(["a \"cat\"","dog"])"}});
  EXPECT_THAT(body.graph.metadata,
              ::testing::IsSupersetOf(std::map<std::string, std::string>{
                  {"names", R"({0: "a \"cat\"", 1: "dog"})"},
                  {"task", "detect"},
                  {"batch", "4"},
                  {"channels", "3"},
                  {"end2end", "False"},
                  {"stride", "32"}}));
}

TEST(SettleFormats, TheSuffixOfTheOutputIsAFormat) {
  const auto settled = [](const std::string& output,
                          std::vector<std::string> include) {
    ExportRequest asked;
    asked.output = output;
    asked.include = std::move(include);
    settle_formats(asked);
    std::string text = asked.output + ":";
    for (const std::string& format : asked.include) text += " " + format;
    return text;
  };
  EXPECT_EQ(settled("d/y.safetensors", {}), "d/y: safetensors");
  EXPECT_EQ(settled("y.pt", {}), "y: pt");
  EXPECT_EQ(settled("y.onnx", {"onnx", "torchscript"}), "y: onnx torchscript");
  EXPECT_EQ(settled("y.v2", {}), "y.v2: onnx");
  EXPECT_EQ(settled("", {}), ": onnx");
  // If the output is a folder, the file gets the name of the weights; it must
  // not be the hidden file ".onnx".
  const std::string folder = ::testing::TempDir();
  ExportRequest asked;
  asked.output = folder;
  asked.weights = "runs/best.safetensors";
  settle_formats(asked);
  EXPECT_EQ(asked.output, (std::filesystem::path(folder) / "best").string());
  EXPECT_EQ(settled("none/", {}), "none/: onnx");
  for (const char* suffix : {"pth", "engine"}) {
    EXPECT_EQ(error_text([&] { settled(cat("k.", suffix), {}); }),
              cat("[export] --output k.", suffix, " ends in .", suffix,
                  ", which is not written: end it in .onnx, .torchscript, "
                  ".safetensors, .pt, or in no suffix"));
  }
  EXPECT_EQ(error_text([&] { settled("y.safetensors", {"onnx"}); }),
            "[export] --output y.safetensors ends in a format that --include "
            "onnx does not write: add safetensors to --include, or leave the "
            "suffix out");
}

TEST_F(OnnxTest, UnsupportedExportsAreRefused) {
  model::LayerGraph model(layers::load_model_table("yolov5n"), 3, at::kFloat,
                          0);
  weights::save_weights(weights_, model.state(), {{"model", "yolov5n"}});
  const auto complaint =
      [&](const std::function<void(ExportRequest&)>& change) {
        ExportRequest asked = request("x");
        change(asked);
        return error_text([&] { export_weights(asked); });
      };
  EXPECT_EQ(complaint([](ExportRequest&) {}), "");
  EXPECT_THAT(complaint([](ExportRequest& asked) { asked.height = 100; }),
              HasSubstr("give --img 128"));
  EXPECT_THAT(
      complaint([](ExportRequest& asked) { asked.include = {"coreml"}; }),
      HasSubstr("use onnx, torchscript, safetensors or pt"));
  EXPECT_THAT(
      complaint([](ExportRequest& asked) { asked.raw = asked.nms = true; }),
      HasSubstr("give one of them"));
  EXPECT_THAT(complaint([&](ExportRequest& asked) {
                asked.output = folder_.path() / "weights";
                asked.include = {"safetensors"};
              }),
              HasSubstr("is the file of weights itself"));
  EXPECT_NE(complaint([&](ExportRequest& asked) {
              asked.weights = folder_.path() / "gone.pt";
            }),
            "");
}

}  // namespace
}  // namespace headroom::exporter
