// Exported networks, run by onnxruntime (PyPI), against our own forward.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "tests/support/parity.h"
#include "worker/export/export_weights.h"
#include "worker/export/onnx_network.h"
#include "worker/weights/weights.h"

namespace headroom::exporter {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OnnxTest : public ::testing::Test {
 protected:
  OnnxTest() {
    std::string name =
        (fs::temp_directory_path() / "headroom_onnx_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~OnnxTest() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  ExportRequest request(const std::string& name) const {
    ExportRequest made;
    made.weights = folder_ / "weights.safetensors";
    made.include = {"onnx"};
    made.output = folder_ / name;
    made.height = 128;
    made.width = 160;
    made.batch = 2;
    return made;
  }

  // Rule-made weights with calibrated statistics: outputs vary strongly, and
  // rounding grows to 1e-4 through the layers.
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

  // Writes the weights, and images with the results of float64. Returns the
  // deviation of our own float32, measured as in `run`.
  double write_model(const std::string& model_name, model::LayerGraph& model,
                     int64_t classes) const {
    const at::NoGradGuard no_grad;
    weights::save_weights(folder_ / "weights.safetensors", model.state(),
                          {{"model", model_name}});
    model::LayerGraph exact(layers::load_model_table(model_name), classes,
                            at::kDouble, 0);
    weights::load_weights(folder_ / "weights.safetensors", exact, {});
    const at::Tensor x = rule_input("A", 2, 128, 160, at::kFloat);
    const auto ours = outputs(model, x);
    auto reference = outputs(exact, x.to(at::kDouble));
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      const at::Tensor scale = reference[i].second.abs().clamp_min(1);
      worst = std::max(worst, ((ours[i].second - reference[i].second) / scale)
                                  .abs()
                                  .max()
                                  .item<double>());
      reference[i].second = reference[i].second.to(at::kFloat).contiguous();
    }
    reference.emplace_back("x", x.contiguous());
    weights::write_safetensors(folder_ / "reference.safetensors", reference,
                               {});
    return worst;
  }

  static std::vector<std::pair<std::string, at::Tensor>> outputs(
      model::LayerGraph& model, const at::Tensor& images) {
    const auto heads = model.forward(images, model::StepContext());
    std::vector<std::pair<std::string, at::Tensor>> all = {
        {"decoded", model.decode(heads)}};
    for (size_t i = 0; i < heads.size(); ++i) {
      all.emplace_back("level" + std::to_string(i), heads[i]);
    }
    return all;
  }

  void export_every_form() const {
    ExportRequest fixed = request("fixed");
    export_weights(fixed);
    ExportRequest raw = request("raw");
    raw.raw = true;
    export_weights(raw);
    ExportRequest dynamic = request("dynamic");
    dynamic.dynamic = true;
    dynamic.batch = 1;
    export_weights(dynamic);
    dynamic.output = folder_ / "dynamic_raw";
    dynamic.raw = true;
    export_weights(dynamic);
  }

  // Every output of every form within `tolerance` of float64.
  void expect_within(double tolerance) const {
    const std::map<std::string, double> deviations = run();
    if (deviations.empty()) {
      GTEST_SKIP() << "onnxruntime is not installed (pip install onnxruntime)";
    }
    EXPECT_EQ(deviations.size(), 8u);
    for (const auto& [what, deviation] : deviations) {
      EXPECT_LT(deviation, tolerance) << what;
      EXPECT_GE(deviation, 0) << what;
    }
  }

  // "NAME output deviation" per line; empty if onnxruntime is not installed.
  std::map<std::string, double> run() const {
    const fs::path source = HEADROOM_SOURCE_DIR;
    const fs::path own = source / ".deps/venv/bin/python";
    const std::string python = fs::exists(own) ? own.string() : "python3";
    const std::string command =
        python + " " + (source / "tests/worker/export/run_onnx.py").string() +
        " " + folder_.string() + " 2>&1";
    FILE* const pipe = ::popen(command.c_str(), "r");
    std::string text;
    for (int c = ::fgetc(pipe); c != EOF; c = ::fgetc(pipe)) {
      text += static_cast<char>(c);
    }
    const int status = ::pclose(pipe);
    if (WEXITSTATUS(status) == 77) return {};
    EXPECT_EQ(status, 0) << text;
    std::map<std::string, double> deviations;
    std::istringstream lines(text);
    std::string name, output;
    double deviation = 0;
    while (lines >> name >> output >> deviation) {
      deviations[name + " " + output] = deviation;
    }
    return deviations;
  }

  fs::path folder_;
};

TEST_F(OnnxTest, OnnxruntimeIsAsExactAsOurFloat32) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  model::LayerGraph model(layers::load_model_table("yolov5s"), 80, at::kFloat,
                          0);
  fill_lively(model, "bn_calibrated_v5s.safetensors");
  const double own = write_model("yolov5s", model, 80);
  EXPECT_THAT(export_weights(request("fixed")).at(0),
              HasSubstr("images 2x3x128x160 -> output0 2x1260x85"));
  export_every_form();
  expect_within(2 * own);
}

// Every convolution with its batch norm folded into it, and no other tensors of
// the state: the reference's fused model.
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
  export_every_form();
  expect_within(1e-4);
}

TEST_F(OnnxTest, OnnxruntimeComputesEveryModule) {
  const std::string name =
      HEADROOM_SOURCE_DIR "/tests/support/models/many_modules.yaml";
  model::LayerGraph model(layers::load_model_table(name), 80, at::kFloat, 0);
  EXPECT_LT(write_model(name, model, 80), 1e-4);
  export_every_form();
  const std::map<std::string, double> deviations = run();
  if (deviations.empty()) GTEST_SKIP() << "onnxruntime is not installed";
  EXPECT_EQ(deviations.size(), 6u);  // of two levels
  for (const auto& [what, deviation] : deviations)
    EXPECT_LT(deviation, 1e-4) << what;
}

TEST_F(OnnxTest, OnnxruntimeComputesATrainedNetwork) {
  if (!parity_present()) GTEST_SKIP() << kParityMissing;
  model::LayerGraph model(layers::load_model_table("yolov5n"), 3, at::kFloat,
                          0);
  weights::load_weights(parity_path("weights/bccd_v5n.safetensors"), model, {});
  EXPECT_LT(write_model("yolov5n", model, 3), 1e-4);
  export_every_form();
  expect_within(1e-4);
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
  EXPECT_EQ(settled("y.onnx", {"onnx", "torchscript"}), "y: onnx torchscript");
  EXPECT_EQ(settled("y.v2", {}), "y.v2: onnx");
  EXPECT_EQ(settled("", {}), ": onnx");
  // In a folder the file gets the name of the weights: no hidden ".onnx".
  const std::string folder = ::testing::TempDir();
  ExportRequest asked;
  asked.output = folder;
  asked.weights = "runs/best.safetensors";
  settle_formats(asked);
  EXPECT_EQ(asked.output, (std::filesystem::path(folder) / "best").string());
  EXPECT_EQ(settled("none/", {}), "none/: onnx");
  for (const char* other : {"k.pt", "k.engine"}) {
    try {
      settled(other, {});
      ADD_FAILURE() << other;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "[export] --output " + std::string(other) + " ends in " +
                    std::string(other).substr(1) +
                    ", which is not written: end it in .onnx, .torchscript or "
                    ".safetensors");
    }
  }
  try {
    settled("y.safetensors", {"onnx"});
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[export] --output y.safetensors ends in a format that "
                 "--include onnx does not write: add safetensors to --include, "
                 "or leave the suffix out");
  }
}

TEST_F(OnnxTest, UnsupportedExportsAreRefused) {
  model::LayerGraph model(layers::load_model_table("yolov5n"), 3, at::kFloat,
                          0);
  weights::save_weights(folder_ / "weights.safetensors", model.state(),
                        {{"model", "yolov5n"}});
  const auto complaint = [](const ExportRequest& asked) -> std::string {
    try {
      export_weights(asked);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  ExportRequest asked = request("x");
  EXPECT_EQ(complaint(asked), "");
  asked.height = 100;
  EXPECT_THAT(complaint(asked), HasSubstr("give --img 128"));
  asked = request("x");
  asked.include = {"coreml"};
  EXPECT_THAT(complaint(asked),
              HasSubstr("use onnx, torchscript or safetensors"));
  asked = request("x");
  asked.raw = asked.nms = true;
  EXPECT_THAT(complaint(asked), HasSubstr("give one of them"));
  asked = request("weights");
  asked.include = {"safetensors"};
  EXPECT_THAT(complaint(asked), HasSubstr("is the file of weights itself"));
  asked = request("x");
  asked.weights = folder_ / "gone.pt";
  EXPECT_NE(complaint(asked), "");
}

}  // namespace
}  // namespace headroom::exporter
