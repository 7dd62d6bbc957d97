// LibTorch's interpreter runs exported TorchScript modules and gives the
// results of our own forward.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/import.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "configs/layers/model_table.h"
#include "parallel/base/text.h"
#include "tests/support/error_text.h"
#include "tests/support/parity.h"
#include "tests/support/temporary_folder.h"
#include "tests/worker/export/onnxruntime_folder.h"
#include "worker/export/export_weights.h"
#include "worker/export/torchscript_network.h"
#include "worker/weights/weights.h"

namespace headroom::exporter {
namespace {

using testing::TemporaryFolder;

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const std::map<std::string, std::string> kTwoNames = {
    {"names", R"(["cat","dog"])"}};

torch::jit::Module load(const std::string& archive,
                        torch::jit::ExtraFilesMap extra_files = {}) {
  std::istringstream stream(archive);
  return torch::jit::load(stream, std::nullopt, extra_files);
}

double deviation(torch::jit::Module& module, model::LayerGraph& model,
                 const at::Tensor& images) {
  const at::NoGradGuard no_grad;
  at::Tensor ours = model.decode(model.forward(images, model::StepContext()));
  if (!model.has_anchors()) ours = as_exported(ours);
  const at::Tensor theirs = module.forward({images}).toTensor();
  EXPECT_EQ(theirs.sizes(), ours.sizes());
  if (theirs.sizes() != ours.sizes()) return 1;
  return ((theirs - ours) / ours.abs().clamp_min(1)).abs().max().item<double>();
}

class TorchscriptModels : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchscriptModels, GiveTheBoxesOfOurOwnForwardAtAnySize) {
  const layers::ModelTable table = layers::load_model_table(GetParam());
  model::LayerGraph model(table, 2, at::kDouble, 0);
  fill_model(model.state());
  torch::jit::Module module =
      load(make_torchscript_network(table, model, {at::kDouble}, kTwoNames));
  const int64_t side = model.max_stride();
  for (const auto& [batch, height, width] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 2 * side, 2 * side},
        {2, 2 * side, 3 * side}}) {
    EXPECT_LT(deviation(module, model,
                        rule_input("A", batch, height, width, at::kDouble)),
              1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(, TorchscriptModels,
                         ::testing::Values("yolov5n", "yolov5s-ghost",
                                           "yolov5s-mobilenetv3", "yolov8n",
                                           "yolov5nu"));

TEST(Torchscript, EveryOperationAndActivation) {
  const TemporaryFolder folder;
  for (const char* activation :
       {"nn.ReLU()", "nn.LeakyReLU(0.1)", "nn.Hardswish()", "nn.Mish()"}) {
    const fs::path file =
        folder.write("own.yaml", cat("activation: ", activation, R"(
nc: 2
depth_multiple: 1.0
width_multiple: 1.0
anchors:
  - [10,13, 16,30]
  - [30,61, 62,45]
backbone:
  - [-1, 1, Focus, [16, 3]]
  - [-1, 1, ShuffleNetV2, [32, 2]]
  - [-1, 2, ShuffleNetV2, [32, 1]]
  - [-1, 1, DWConv, [32, 3, 2]]
  - [-1, 1, SPP, [32, [5, 9]]]
  - [-1, 1, SqueezeExcitation, []]
head:
  - [-1, 1, nn.ConvTranspose2d, [32, 2, 2]]
  - [[-1, 2], 1, Concat, [1]]
  - [[7, 5], 1, Detect, [nc, anchors]]
)"));
    const layers::ModelTable table = layers::load_model_table(file.string());
    model::LayerGraph model(table, 2, at::kDouble, 0);
    fill_model(model.state());
    torch::jit::Module module =
        load(make_torchscript_network(table, model, {at::kDouble}, kTwoNames));
    EXPECT_LT(deviation(module, model, rule_input("A", 2, 64, 96, at::kDouble)),
              1e-10)
        << activation;
  }
}

TEST(Torchscript, TheArchiveHasTheMetadataThatYolov5Reads) {
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  std::istringstream stream(make_torchscript_network(
      table, model, {at::kFloat, 1, 320, 640}, kTwoNames));
  torch::jit::ExtraFilesMap extra = {{"config.txt", ""}};
  torch::jit::load(stream, std::nullopt, extra);
  EXPECT_EQ(nlohmann::json::parse(extra.at("config.txt")),
            nlohmann::json::parse(
                R"({"shape":[1,3,320,640],"stride":32,
                    "names":{"0":"cat","1":"dog"}})"));
}

TEST(Torchscript, WeightsOf16Bits) {
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  const torch::jit::Module module =
      load(make_torchscript_network(table, model, {at::kHalf}, kTwoNames));
  int64_t halves = 0, floats = 0;
  for (const at::Tensor& buffer : module.buffers()) {
    ++(buffer.scalar_type() == at::kHalf ? halves : floats);
  }
  EXPECT_EQ(floats, 3);  // anchors: boxes are decoded in float32
  EXPECT_GT(halves, 100);
}

TEST(Torchscript, UnsupportedOptionsAreRefused) {
  ExportRequest request;
  request.weights = "w.safetensors";
  request.include = {"torchscript"};
  request.nms = true;
  EXPECT_THAT(error_text([&] { export_weights(request); }),
              HasSubstr("--nms is not a choice of torchscript"));
}

}  // namespace
}  // namespace headroom::exporter
