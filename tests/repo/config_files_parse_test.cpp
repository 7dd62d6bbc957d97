// Every YAML file of configs/ is read by its reader, so that a broken file is
// noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "configs/flags.h"
#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "configs/yaml/shipped_files.h"
#include "configs/yaml/strict_yaml.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/planner.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> yaml_files(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(
           fs::path(HEADROOM_SOURCE_DIR) / "configs" / folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ConfigFilesParse, Models) {
  for (const std::string& name : yaml::shipped_names("model")) {
    EXPECT_GE(layers::load_model_table(name).layers.size(), 23u) << name;
  }
}

TEST(ConfigFilesParse, Hyperparameters) {
  const auto files = yaml_files("hyp");
  EXPECT_GE(files.size(), 6u);
  for (const fs::path& file : files) {
    configs::RunConfig config;
    configs::load_hyperparameters(config, file);
    EXPECT_EQ(config.hyp_file, file);
  }
}

TEST(ConfigFilesParse, Runs) {
  const auto files = yaml_files("run");
  EXPECT_GE(files.size(), 6u);
  for (const fs::path& file : files) {
    std::vector<configs::FlagUse> uses = {{"--config", {file}}};
    configs::RunConfig config = configs::run_config_from_flags("train", uses);
    EXPECT_NE(config, configs::RunConfig()) << file;
    if (!config.synthetic_input) config.data = "data.yaml";
    EXPECT_NO_THROW(configs::check_run_config(config)) << file;
    EXPECT_NO_THROW(configs::check_run_sources(config)) << file;
    const int world_size =
        config.layout ? config.layout->world_size()
                      : std::max(1, static_cast<int>(config.processes));
    EXPECT_NO_THROW(planner::plan_or_throw(config, world_size,
                                           planner::model_layers(config)))
        << file;
  }
}

TEST(ConfigFilesParse, DataSets) {
  for (const fs::path& file : yaml_files("data")) {
    const yaml::YamlValue root =
        yaml::parse_yaml(yaml::read_config_file(file, "data"), file.string());
    EXPECT_NE(root.find("names"), nullptr) << file;
  }
}

}  // namespace
}  // namespace headroom
