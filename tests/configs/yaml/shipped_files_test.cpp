#include "configs/yaml/shipped_files.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

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
  size_t files = 0;
  for (const char* folder :
       {"model", "hyp", "cluster", "cards", "flags", "weights"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(root / folder)) {
      files += entry.path().extension() == ".yaml" ? 1 : 0;
    }
  }
  EXPECT_EQ(shipped_files().size(), files);
  for (const ShippedFile& file : shipped_files()) {
    EXPECT_EQ(file.content, content_of(root / file.path)) << file.path;
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
