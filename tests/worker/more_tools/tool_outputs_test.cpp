// An output path that cannot be used is reported as a usage error, before any
// data is read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "tests/support/error_text.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/tools/tool_run.h"
#include "worker/model/layer_graph.h"
#include "worker/more_tools/more_tools.h"
#include "worker/weights/weights.h"
#include "worker/weights/weights_file.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ToolOutputs : public ::testing::Test {
 protected:
  // The message of a request that is refused with `code`.
  static std::string refusal(const std::vector<std::string>& words,
                             ExitCode code = ExitCode::kRequest) {
    const std::string text =
        error_text([&] { call(find_any_tool(words[0]), words); }, code);
    return text.empty() ? "accepted" : text;
  }

  TemporaryFolder folder_;
};

TEST_F(ToolOutputs, AFileInAFolderThatIsNotThere) {
  const std::string none = (folder_.path() / "none").string();
  EXPECT_EQ(refusal({"prune", "--weights=gone.safetensors",
                     "--output=" + none + "/x.safetensors"}),
            "[prune] --output " + none + "/x.safetensors: there is no folder " +
                none + ": make it, or name a file in a folder that is there");
  EXPECT_THAT(refusal({"export", "--weights=gone.safetensors",
                       "--output=" + none + "/x"}),
              HasSubstr("[export] --output " + none +
                        "/x: there is no folder " + none));
}

TEST_F(ToolOutputs, MissingWeightsAreReportedAlike) {
  const std::string line =
      "[weights] there is no file gone.pt: nothing is downloaded: get the "
      "file, YOLOv5's own with headroom fetch, and give its path";
  EXPECT_EQ(refusal({"export", "--weights=gone.pt"}), line);
  EXPECT_EQ(refusal({"prune", "--weights=gone.pt"}), line);
  EXPECT_EQ(
      refusal({"detect", "--weights=gone.pt", "--source=.", "--output=out"}),
      line);
}

TEST_F(ToolOutputs, AFolderOfImagesUnderOtherNamesGivesTheReason) {
  const fs::path weights = folder_.path() / "w.safetensors";
  write_weights(weights, 2, 64, 0.02);
  folder_.write("in/a.picture", "\x89PNG");
  EXPECT_THAT(
      refusal({"detect", "--weights=" + weights.string(),
               "--source=" + (folder_.path() / "in").string(),
               "--output=" + (folder_.path() / "out").string()},
              ExitCode::kData),
      AllOf(HasSubstr("holds no image and no video that can be decoded: 1 file "
                      "left out, first "),
            HasSubstr("a.picture: unsupported format (a PNG image, but its "
                      "suffix is .picture)")));
}

TEST_F(ToolOutputs, TheSizeOfTrainingIsUsedAndHandedOn) {
  const fs::path file = folder_.path() / "w.safetensors";
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  auto metadata = layers::model_metadata("yolov5n", table);
  metadata["names"] = R"(["a","b"])";
  layers::describe_input(metadata, {64, 96}, 32);
  metadata["single_cls"] = "true";
  metadata["value_range"] = "0,4095";
  weights::save_weights(file, model.state(), metadata);
  const std::string weights = "--weights=" + file.string();

  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(refusal({"export", weights}), "accepted");
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr(": images 1x3x64x96 -> "));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "--img is 64 x 96, as " + file.string() + " was trained\n");

  ::testing::internal::CaptureStdout();
  const fs::path pruned = folder_.path() / "p.safetensors";
  EXPECT_EQ(refusal({"prune", weights, "--output=" + pruned.string()}),
            "accepted");
  ::testing::internal::GetCapturedStdout();
  const auto kept = weights::read_weights_metadata(pruned);
  for (const char* key :
       {"names", "imgsz", "stride", "range", "single_cls", "value_range"}) {
    ASSERT_TRUE(kept.contains(key)) << key;
    EXPECT_EQ(kept.at(key), metadata.at(key));
  }
}

TEST_F(ToolOutputs, AFileThatTheCommandDidNotWriteIsNotReplaced) {
  const fs::path file = folder_.path() / "w.safetensors";
  const layers::ModelTable table = layers::load_model_table("yolov5n");
  model::LayerGraph model(table, 2, at::kFloat, 0);
  weights::save_weights(file, model.state(),
                        layers::model_metadata("yolov5n", table));
  const std::string weights = "--weights=" + file.string();
  const fs::path out = folder_.path() / "out";
  const std::string output = "--output=" + out.string();
  for (const char* format : {"onnx", "torchscript", "safetensors"}) {
    const std::string name = std::string("out.") + format;
    const std::vector<std::string> command = {
        "export", weights, output, "--img=64",
        std::string("--include=") + format};
    folder_.write(name, "mine");
    EXPECT_THAT(refusal(command),
                AllOf(HasSubstr(name + " is there"),
                      HasSubstr("move it away, or give another --output")));
    EXPECT_EQ(folder_.read(name), "mine");
    fs::remove(folder_.path() / name);
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(refusal(command), "accepted");
    EXPECT_EQ(refusal(command), "accepted") << "an earlier export is replaced";
    ::testing::internal::GetCapturedStdout();
  }
  folder_.write("p.safetensors", "mine");
  const std::string pruned =
      "--output=" + (folder_.path() / "p.safetensors").string();
  EXPECT_THAT(refusal({"prune", weights, pruned}),
              HasSubstr("p.safetensors is there, and is no file of weights"));
  EXPECT_EQ(folder_.read("p.safetensors"), "mine");
}

TEST_F(ToolOutputs, AFileWhereAFolderIsToBe) {
  folder_.write("in/images/a.bmp", encode_bmp(test_picture(90, 150, 5)));
  folder_.write("in/labels/a.txt", "0 .2 .2 .1 .1\n");
  const fs::path data =
      folder_.write("in/data.yaml", "train: images\nval: images\nnames: [a]\n");
  EXPECT_THAT(refusal({"tile", "--data=" + data.string(),
                       "--output=" + data.string() + "/tiles"}),
              AllOf(HasSubstr("cannot be made"), HasSubstr("--output")));
}

TEST_F(ToolOutputs, UnsupportedExportsAreRefusedBeforeTheDataIsRead) {
  EXPECT_EQ(refusal({"export", "--weights=gone.safetensors", "--int8", "--half",
                     "--data=gone.yaml"}),
            "[export] --int8 and --half are two types for the same numbers: "
            "give one of them");
}

}  // namespace
}  // namespace headroom::tools
