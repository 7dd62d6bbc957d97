#include "configs/card_measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

using ::testing::HasSubstr;

CardMeasurement of_yolov5s(const std::string& card = "NVIDIA H200") {
  return {.card = card,
          .model = "yolov5s",
          .parameters = 7235389,
          .precision = Precision::kBf16,
          .height = 640,
          .width = 640,
          .images = 64,
          .seconds = 0.0253,
          .time_scale = 0.93,
          .seconds_beside_layers = 0.0011,
          .date = "2026-11-30",
          .uuid = "GPU-f2b1",
          .driver = ""};
}

class CardMeasurements : public ::testing::Test {
 protected:
  CardMeasurements() { setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1); }
  ~CardMeasurements() override { unsetenv("XDG_CACHE_HOME"); }

  testing::TemporaryFolder folder_;
};

std::string refusal_of(const std::string& text) {
  try {
    parse_card_measurements(text, "h200.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from,
                     const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST_F(CardMeasurements, AreReadAsTheyWereStored) {
  EXPECT_TRUE(measurements_of("NVIDIA H200").empty());
  const auto file = store_measurement(of_yolov5s());
  EXPECT_EQ(file, folder_.path() / "headroom/cards/NVIDIA-H200.yaml");
  const auto found = measurements_of("NVIDIA H200");
  ASSERT_EQ(found.size(), 1);
  CardMeasurement expected = of_yolov5s();
  expected.program = found[0].program;  // set when it is stored
  EXPECT_FALSE(expected.program.empty());
  EXPECT_EQ(found[0], expected);
  EXPECT_TRUE(measurements_of("NVIDIA H100 80GB").empty());
}

TEST_F(CardMeasurements, ANewOneReplacesThatOfTheSameModelAndFormat) {
  store_measurement(of_yolov5s());
  CardMeasurement other = of_yolov5s();
  other.precision = Precision::kFp32;
  store_measurement(other);
  CardMeasurement newer = of_yolov5s();
  newer.time_scale = 0.8;
  store_measurement(newer);
  const auto found = measurements_of("NVIDIA H200");
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[1].time_scale, 0.8);
}

TEST_F(CardMeasurements, ANewOneLeavesThoseOfOtherDrivers) {
  CardMeasurement of_old_driver = of_yolov5s();
  of_old_driver.driver = "1.0";
  CardMeasurement of_new_driver = of_yolov5s();
  of_new_driver.driver = "2.0";
  store_measurement(of_old_driver);
  store_measurement(of_new_driver);
  of_old_driver.time_scale = 0.8;
  const auto file = store_measurement(of_old_driver);
  const auto stored =
      parse_card_measurements(testing::read_bytes(file), file.string());
  ASSERT_EQ(stored.size(), 2);
  EXPECT_EQ(stored[0].driver, "2.0");
  EXPECT_EQ(stored[1].driver, "1.0");
  EXPECT_EQ(stored[1].time_scale, 0.8);
}

TEST_F(CardMeasurements, ThoseOfAnotherVersionAreNotUsed) {
  const auto file = store_measurement(of_yolov5s());
  const std::string text = testing::read_bytes(file);
  const std::string program = measurements_of("NVIDIA H200")[0].program;
  folder_.write(
      "headroom/cards/NVIDIA-H200.yaml",
      replaced(text, "program: \"" + program, "program: \"0" + program));
  EXPECT_TRUE(measurements_of("NVIDIA H200").empty());
}

TEST_F(CardMeasurements, AWrongFileIsRefusedWithItsLine) {
  std::vector<CardMeasurement> one = {of_yolov5s()};
  one[0].program = "1";
  const std::string right = to_yaml(one);
  EXPECT_EQ(parse_card_measurements(right, "h200.yaml"), one);
  for (const auto& [from, to, said] : std::vector<std::array<std::string, 3>>{
           {"time_scale: 0.93", "time_scale: -1",
            "h200.yaml:13:17: time_scale is '-1': remove the file"},
           {"time_scale: 0.93", "time_scale: nan", "h200.yaml:13:17: "},
           {"seconds: 0.0253", "seconds: fast", "h200.yaml:12:14: "},
           {"images: 64", "images: 0", "h200.yaml:11:13: images is '0'"},
           {"precision: \"bf16\"", "precision: bf17",
            "h200.yaml:6:16: precision is 'bf17'"},
           {"tf32: false", "tf32: maybe", "h200.yaml:7:11: tf32 is 'maybe'"},
           {"uuid:", "uid:", "h200.yaml:16:5: unknown key 'uid'"},
           {"measurements:", "measurements: 3\nother:", "h200.yaml:"}}) {
    EXPECT_THAT(refusal_of(replaced(right, from, to)), HasSubstr(said)) << to;
  }
  EXPECT_THAT(refusal_of("card: [\n"), HasSubstr("h200.yaml:"));
}

TEST_F(CardMeasurements, AllFilesAreReadButWrongOnes) {
  store_measurement(of_yolov5s());
  store_measurement(of_yolov5s("NVIDIA T4"));
  folder_.write("headroom/cards/broken.yaml", "card: 3\nmeasurements: [1]\n");
  std::vector<std::string> faults;
  const auto all = all_measurements(
      [&](const std::string& fault) { faults.push_back(fault); });
  EXPECT_EQ(all.size(), 2);
  ASSERT_EQ(faults.size(), 1);
  EXPECT_THAT(faults[0], HasSubstr("broken.yaml:"));
}

}  // namespace
}  // namespace headroom::configs
