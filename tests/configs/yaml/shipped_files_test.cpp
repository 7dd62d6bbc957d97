#include "configs/yaml/shipped_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "tests/support/temporary_folder.h"

namespace headroom::yaml {
namespace {

std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ShippedFiles, AreTheFilesOfTheTree) {
  const std::filesystem::path root = HEADROOM_SOURCE_DIR "/configs";
  std::map<std::string, std::string> expected;
  for (const char* folder :
       {"model", "hyp", "cluster", "cards", "flags", "weights"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(root / folder)) {
      if (entry.path().extension() != ".yaml") continue;
      expected[folder + ("/" + entry.path().filename().string())] =
          content_of(entry.path());
    }
  }
  // The files of families are shipped under the names of their sizes.
  for (const std::string family : {"yolov5-6u", "yolov5u", "yolov8"}) {
    const auto file = expected.extract("model/" + family + ".yaml");
    ASSERT_FALSE(file.empty()) << family;
    for (const std::string size : {"n", "s", "m", "l", "x"}) {
      std::string name = family == "yolov5-6u" ? "yolov5" + size + "6u"
                         : family == "yolov5u" ? "yolov5" + size + "u"
                                               : family + size;
      expected["model/" + std::move(name) + ".yaml"] = file.mapped();
    }
  }
  EXPECT_EQ(shipped_files().size(), expected.size());
  for (const ShippedFile& file : shipped_files()) {
    EXPECT_EQ(file.content, expected[file.path]) << file.path;
  }
}

TEST(ShippedFiles, AnExistingFileWins) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.write("yolov5n.yaml", "mine");
  EXPECT_EQ(file_or_shipped(path, "model", "model").text, "mine");
  EXPECT_EQ(file_or_shipped("yolov5n", "model", "model").file, "yolov5n.yaml");
}

}  // namespace
}  // namespace headroom::yaml
