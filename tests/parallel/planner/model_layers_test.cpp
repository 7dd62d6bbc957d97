#include "parallel/planner/model_layers.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "parallel/base/check.h"
#include "parallel/plan/layout.h"

namespace headroom::planner {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Writes a file that has only a header, preceded by the header's length.
std::string weights_file(const std::string& name, const std::string& header) {
  const std::filesystem::path folder =
      std::filesystem::path(HEADROOM_BUILD_DIR) / "tests/model_layers";
  std::filesystem::create_directories(folder);
  std::ofstream file(folder / name, std::ios::binary);
  uint64_t length = header.size();
  for (int i = 0; i < 8; ++i, length >>= 8) {
    file.put(static_cast<char>(length & 0xff));
  }
  file << header;
  return folder / name;
}

configs::RunConfig with_weights(const std::string& file) {
  configs::RunConfig config;
  config.weights = file;
  return config;
}

TEST(ModelLayers, TheModelIsCfgElseThatOfTheWeightsElseYolov5s) {
  EXPECT_EQ(model_of_run(configs::RunConfig()), "yolov5s");
  configs::RunConfig config = with_weights(
      weights_file("m.safetensors", R"({"__metadata__":{"model":"yolov5m"}})"));
  EXPECT_EQ(model_of_run(config), "yolov5m");
  EXPECT_EQ(model_layers(config).at(0).channels, 48);
  config.cfg = "yolov5n";
  EXPECT_EQ(model_of_run(config), "yolov5n");
}

TEST(ModelLayers, WeightsThatDoNotSayAreRefused) {
  EXPECT_THAT(
      [] {
        model_of_run(with_weights(weights_file("none.safetensors", "{}")));
      },
      ThrowsMessage<Error>(HasSubstr("does not say which model it holds: name "
                                     "it, for example --cfg yolov5n")));
  for (const char* header : {"[]", "no header", ""}) {
    EXPECT_THAT(
        [&] {
          model_of_run(with_weights(weights_file("bad.safetensors", header)));
        },
        ThrowsMessage<Error>(
            HasSubstr("neither safetensors nor a checkpoint")));
  }
  EXPECT_THROW(model_of_run(with_weights("/gone.safetensors")), Error);
}

TEST(ModelLayers, AHeaderThatClaimsMoreThanThereIsIsRefused) {
  const std::string file = weights_file("short.safetensors", "{}");
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .write("\xff\xff\xff\x00\x00\x00\x00\x00", 8);
  EXPECT_THROW(model_of_run(with_weights(file)), Error);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .write("\xff\xff\xff\xff\xff\xff\xff\xff", 8);
  EXPECT_THROW(model_of_run(with_weights(file)), Error);
}

TEST(ModelLayers, FilesAreReadOnlyWhereThePlanNeedsThem) {
  configs::RunConfig config = with_weights("/gone.safetensors");
  config.layout = plan::parse_layout("data=2");
  EXPECT_TRUE(layers_for_plan(config).empty());
  config.layout = plan::parse_layout("pipeline=2");
  EXPECT_THROW(layers_for_plan(config), Error);
  config.cfg = "yolov5n";
  EXPECT_EQ(layers_for_plan(config).size(), 25u);
}

}  // namespace
}  // namespace headroom::planner
