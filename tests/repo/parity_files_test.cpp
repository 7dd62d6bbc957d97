// A test reads every file of the reference's numbers, by its name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/repo/source_tree.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder =
    fs::path(HEADROOM_SOURCE_DIR) / ".." / "shared" / "parity";

// Files that no test reads, because they are written for people.
bool is_text(const std::string& name) { return name.ends_with("README.md"); }

TEST(ParityFiles, AreAsTheirManifestSays) {
  std::ifstream file(kFolder / "MANIFEST.json");
  if (!file) GTEST_SKIP() << kFolder << " is not here";
  std::printf("parity file used: MANIFEST.json\n");
  const nlohmann::json manifest = nlohmann::json::parse(file);
  EXPECT_GT(manifest.size(), 20u);
  for (const auto& [name, entry] : manifest.items()) {
    std::error_code missing;
    EXPECT_EQ(fs::file_size(kFolder / name, missing), entry["bytes"]) << name;
    EXPECT_FALSE(missing) << name;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    if (entry.is_directory() || name == "MANIFEST.json") continue;
    EXPECT_TRUE(manifest.contains(name)) << name << " is not in the manifest";
  }
}

TEST(ParityFiles, EachIsReadByATest) {
  if (!fs::exists(kFolder)) GTEST_SKIP() << kFolder << " is not here";
  std::string tests;
  for (const SourceFile& file : project_files()) {
    if (!file.path.starts_with("tests/") || !is_cpp(file)) continue;
    for (const std::string& line : file.lines) tests += line + "\n";
  }
  int64_t found = 0;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(kFolder)) {
    const std::string name =
        fs::relative(entry.path(), kFolder).generic_string();
    if (entry.is_directory() || is_text(name)) continue;
    // Of the networks without anchors, tests compose the names of tensor files
    // from those of the networks, and bccd.json has figures of trainings.
    if (name.starts_with("u/") &&
        (!name.ends_with(".json") || name == "u/bccd.json" ||
         name == "u/MANIFEST.json")) {
      continue;
    }
    ++found;
    // The name is at the end of a string, after any folder.
    EXPECT_NE(tests.find(name + "\""), std::string::npos)
        << name << ": no test reads it";
  }
  EXPECT_GT(found, 25);
}

}  // namespace
}  // namespace headroom
