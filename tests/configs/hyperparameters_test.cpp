#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "configs/options.h"
#include "configs/run_config.h"
#include "configs/yaml/scalar.h"
#include "configs/yaml/shipped_files.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

TEST(Hyperparameters, DefaultsAreScratchLow) {
  RunConfig config;
  config.hyp.lr0 = 5;
  load_hyperparameters(config, "scratch-low");
  EXPECT_EQ(config.hyp, Hyperparameters());
  EXPECT_EQ(config.hyp_file, "scratch-low");
}

TEST(Hyperparameters, ShippedSets) {
  RunConfig config;
  load_hyperparameters(config, "scratch-high.yaml");
  EXPECT_EQ(config.hyp.mixup, 0.1);
  EXPECT_EQ(config.hyp.copy_paste, 0.1);
  load_hyperparameters(config, "hyp.VOC.yaml");  // the file's name in YOLOv5
  EXPECT_EQ(config.hyp.anchors, 3.412);
  EXPECT_EQ(config.hyp.momentum, 0.74832);
}

TEST(Hyperparameters, AFileReplacesTheKeysThatItNames) {
  const testing::TemporaryFolder folder;
  RunConfig config;
  config.hyp.box = 0.9;
  load_hyperparameters(config, folder.write("h.yaml", "lr0: 0.5\n"));
  EXPECT_EQ(config.hyp.lr0, 0.5);
  EXPECT_EQ(config.hyp.box, 0.9);
}

TEST(Hyperparameters, Refusals) {
  const testing::TemporaryFolder folder;
  RunConfig config;
  const std::string file = folder.write("h.yaml", "lr0: 0.5\nmomentun: 0.9\n");
  EXPECT_EQ(testing::refusal_of([&] { load_hyperparameters(config, file); }),
            "[config] " + file +
                ":2:1: unknown key 'hyp.momentun': did you mean "
                "'hyp.momentum'?");
  EXPECT_EQ(testing::refusal_of(
                [&] { load_hyperparameters(config, "scratch-hihg"); }),
            "[config] there is no file scratch-hihg, nor a shipped hyp file of "
            "that name: did you mean 'scratch-high'? There are: "
            "no-augmentation objects365 scratch-high scratch-low scratch-med "
            "voc");
}

TEST(Hyperparameters, ShippedSetsArePublished) {
  const std::string path =
      HEADROOM_SOURCE_DIR "/../shared/parity/hyperparameters.json";
  std::ifstream file(path);
  if (!file) GTEST_SKIP() << "no " << path;
  std::cout << "parity file used: hyperparameters.json\n";
  const nlohmann::json sets = nlohmann::json::parse(file)["sets"];
  EXPECT_EQ(sets.size(), yaml::shipped_names("hyp").size());
  for (const auto& [name, values] : sets.items()) {
    RunConfig config;
    load_hyperparameters(config, "hyp." + name + ".yaml");
    for (const Option& option : run_options()) {
      if (!option.key.starts_with("hyp.")) continue;
      const std::string key = option.key.substr(4);
      // A hyper-parameter that YOLOv5 does not have keeps its default.
      const auto number = [&](const RunConfig& one) {
        return yaml::parse_double(value_text(one, option)).value();
      };
      EXPECT_EQ(number(config), values.value(key, number(RunConfig())))
          << name << " " << key;
    }
  }
}

}  // namespace
}  // namespace headroom::configs
