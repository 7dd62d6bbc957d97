// headroom plan --measure on the test device, which computes on the CPU: the
// worker trains, the time of its steps is kept, and later plans take it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Measure : public ::testing::Test {
 protected:
  Measure() : folder_(fresh_folder()) {
    setenv(
        "HEADROOM_DEVICE_PLUGIN",
        (std::string(HEADROOM_BUILD_DIR) + "/tests/libheadroom_testdevice.so")
            .c_str(),
        1);
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  }
  ~Measure() override {
    unsetenv("HEADROOM_DEVICE_PLUGIN");
    unsetenv("XDG_CACHE_HOME");
  }

  ProgramResult plan(const std::string& more) const {
    return run_program(
        headroom_command(
            "plan --cfg yolov5n --img 64 --batch 4 --processes 1 " + more),
        folder_);
  }

  const fs::path folder_;
};

TEST_F(Measure, LaterPlansAndRunsTakeWhatWasMeasured) {
  const ProgramResult before = plan("--json");
  ASSERT_EQ(before.exit_code, 0) << before.err;
  EXPECT_EQ(Json::parse(before.out)["forecast"]["card_measured"], "");
  EXPECT_THAT(plan("").out,
              HasSubstr("its speed is assumed, that of NVIDIA A100 80GB"));

  const ProgramResult measured = plan("--measure");
  ASSERT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_LT(measured.seconds, 45);
  EXPECT_THAT(measured.out, HasSubstr("its speed was measured on "));
  EXPECT_THAT(measured.err,
              HasSubstr("measured test device: a step of 4 images takes "));
  const fs::path file = folder_ / "cache/headroom/cards/test-device.yaml";
  EXPECT_THAT(measured.err, HasSubstr("kept in " + file.string()));

  // The forecast is the measured step.
  const ProgramResult after = plan("--json");
  ASSERT_EQ(after.exit_code, 0) << after.err;
  const Json forecast = Json::parse(after.out)["forecast"];
  EXPECT_THAT(forecast["card_measured"].get<std::string>(),
              HasSubstr(" with yolov5n"));
  const std::string text = text_of(file);
  const size_t at = text.find("\n    seconds: ");
  ASSERT_NE(at, std::string::npos) << text;
  const double seconds = std::stod(text.substr(at + 14));
  EXPECT_NEAR(forecast["step_seconds"].get<double>() / seconds, 1, 0.01);

  // A given rate outranks it.
  const ProgramResult given = plan("--json --images-per-second 8");
  EXPECT_NEAR(Json::parse(given.out)["forecast"]["images_per_second"], 8, 0.01);

  const ProgramResult run = run_program(
      headroom_command("train --synthetic-input --cfg yolov5n --img 64 --batch "
                       "4 --device 0 --max-steps 1 --nosave --noval"),
      folder_);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("its speed was measured on "));
}

TEST_F(Measure, AWrongFileIsRefusedByPlansAndNamedByRuns) {
  const fs::path file = folder_ / "cache/headroom/cards/test-device.yaml";
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "card: \"test device\"\nmeasurements:\n  - model: 3\n";
  const ProgramResult refused = plan("");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("test-device.yaml:3:"));
  const ProgramResult run = run_program(
      headroom_command("train --synthetic-input --cfg yolov5n --img 64 --batch "
                       "4 --device 0 --max-steps 1 --nosave --noval"),
      folder_);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("its speed is assumed"),
                             HasSubstr("test-device.yaml:3:")));
}

TEST_F(Measure, WithoutACardOneLineSaysWhatToType) {
  unsetenv("HEADROOM_DEVICE_PLUGIN");
  const ProgramResult refused = plan("--measure");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("--measure needs a card"),
                                 HasSubstr("give --images-per-second N")));
}

}  // namespace
}  // namespace headroom::testing
