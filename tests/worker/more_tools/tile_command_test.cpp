// headroom tile: its flags become the request. (The tiles:
// tests/worker/data/tiles/tiling_test.cpp.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/worker/data/data_files.h"
#include "tests/worker/tools/tool_run.h"
#include "worker/data/codecs/image.h"
#include "worker/more_tools/more_tools.h"

namespace headroom::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TileCommand : public testing::Test {
 protected:
  TileCommand() {
    folder_.write("in/images/a.bmp", encode_bmp(test_picture(90, 150, 5)));
    folder_.write("in/labels/a.txt", "0 .2 .2 .1 .1\n");
    data_ = folder_.write("in/data.yaml",
                          "train: images\nval: images\nnames: [a]\n");
    output_ = folder_.path() / "out";
  }

  ToolResult run(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"tile", "--data=" + data_.string(),
                                      "--output=" + output_.string()};
    words.insert(words.end(), more.begin(), more.end());
    return result_of(find_any_tool("tile"), words);
  }

  TemporaryFolder folder_;
  fs::path data_, output_;
};

TEST_F(TileCommand, CutsByItsFlags) {
  const ToolResult result = run({"--size=40 60", "--overlap=0.5",
                                 "--empty-share=1", "--workers=1", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["data"], (output_ / "data.yaml").string());
  // Down: 0, 16, 33, 50; across: 0, 30, 60, 90.
  EXPECT_EQ(json["splits"][0]["tiles_in_images"], 16);
  EXPECT_EQ(json["splits"][0]["tiles"], 16);
  EXPECT_EQ(codecs::read_image_size(output_ / "images/train/a_50_90.png").size,
            (codecs::ImageSize{40, 60}));
}

TEST_F(TileCommand, PrintsTheWrittenFilesAndTheirFolder) {
  const ToolResult result = run({"--empty-share=0"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("train: 1 of 1 tile written, with 1 box; "));
  EXPECT_THAT(result.out,
              HasSubstr("data: " + (output_ / "data.yaml").string()));
}

TEST_F(TileCommand, InvalidValuesAreRefusedBeforeAnythingIsWritten) {
  for (const char* word :
       {"--size=0", "--size=4 5 6", "--size=70000", "--overlap=0.95",
        "--min-visible=1.5", "--empty-share=-1", "--workers=0"}) {
    EXPECT_EQ(run({word}).code, static_cast<int>(ExitCode::kRequest)) << word;
    EXPECT_FALSE(fs::exists(output_)) << word;
  }
}

}  // namespace
}  // namespace headroom::tools
