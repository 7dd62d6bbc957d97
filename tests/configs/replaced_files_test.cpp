#include "configs/replaced_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(ReplacedFiles, WeightsOfARunAreKnownByTheirNames) {
  for (const char* name :
       {"last.safetensors", "best.safetensors", "epoch12.safetensors"}) {
    EXPECT_TRUE(is_weights_of_run(name)) << name;
  }
  for (const char* name : {"best.pt", "epoch.safetensors", "mine.safetensors",
                           "epoch1b.safetensors", "notes.txt"}) {
    EXPECT_FALSE(is_weights_of_run(name)) << name;
  }
}

TEST(ReplacedFiles, AnInputThatTheRunWouldReplaceIsRefused) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "exp";
  fs::create_directories(run / "weights");
  fs::create_directory_symlink(run, folder.path() / "link");
  RunConfig config;
  for (const fs::path& weights :
       {run / "weights/best.safetensors",
        folder.path() / "link/weights/../weights/last.safetensors",
        run / "checkpoints/step-4/state.safetensors"}) {
    config.weights = weights.string();
    try {
      require_inputs_kept(config, "", run);
      ADD_FAILURE() << weights;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(weights.string()));
      EXPECT_THAT(error.what(), HasSubstr("--exist-ok"));
    }
  }
  config.weights = (run / "weights/mine.safetensors").string();
  EXPECT_NO_THROW(require_inputs_kept(config, "", run));
  config.weights = (folder.path() / "exp2/weights/best.safetensors").string();
  EXPECT_NO_THROW(require_inputs_kept(config, "", run));
  const std::string run_yaml = (run / "run.yaml").string();
  EXPECT_THROW(require_inputs_kept(config, run_yaml, run), Error);
  EXPECT_NO_THROW(require_inputs_kept(config, "run.yaml", run));
  config.teacher = (run / "weights/best.safetensors").string();
  EXPECT_THROW(require_inputs_kept(config, "", run), Error);
}

}  // namespace
}  // namespace headroom::configs
