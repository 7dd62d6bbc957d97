// `headroom val --tile` finds the same boxes as `headroom detect --tile`, and
// its figures are those that `headroom val --detections` gives for the file of
// these boxes.
//
// The tests run real processes on drawn images that are four times as large as
// the network's input. Half of the detections are used as the true boxes, so
// the figures are between 0 and 1, whatever the network has learnt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int kImages = 3, kHeight = 300, kWidth = 424;
const std::vector<std::string> kTiles = {"--tile", "96", "120",
                                         "--tile-overlap", "0.25"};
// The thresholds of val; detect has other defaults.
const std::vector<std::string> kThresholds = {
    "--conf-thres", "0.0005", "--iou-thres", "0.6", "--max-det", "300"};

// Draws coloured rectangles on gray; the rows of the file begin at the bottom.
void write_bitmap(const fs::path& file, int seed) {
  std::string bytes = "BM";
  const auto number = [&bytes](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(value >> (8 * i) & 255));
    }
  };
  number(54 + kHeight * kWidth * 3, 4);
  number(0, 4);
  for (const uint32_t value : {54, 40, kWidth, kHeight}) number(value, 4);
  number(1, 2);
  number(24, 2);
  for (int i = 0; i < 6; ++i) number(0, 4);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const int place = y / 50 * 9 + x / 50;
      const bool inside = (place * 7 + seed) % 3 == 0 && y % 50 > 8 &&
                          y % 50 < 20 + place % 5 * 6 && x % 50 > 12;
      for (int c = 0; c < 3; ++c) {
        bytes.push_back(static_cast<char>(
            inside ? (place * 61 + c * 85 + seed * 40) % 256 : 120));
      }
    }
  }
  std::ofstream(file, std::ios::binary) << bytes;
}

class TiledValidation : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests/runs/tiled_validation";
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "images");
    fs::create_directories(folder_ / "labels");
    for (int i = 1; i <= kImages; ++i) {
      write_bitmap(folder_ / "images" / (std::to_string(i) + ".bmp"), i);
    }
    std::ofstream(folder_ / "data.yaml")
        << "train: images\nval: images\nnames: [thing]\n";
    ProgramResult result = run_program(
        train_shapes("8",
                     {"--epochs", "1", "--noval", "--noplots", "--single-cls"}),
        folder_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    result = run_program(
        joined(joined({program("headroom"), "detect", "--weights", weights(),
                       "--source", "images", "--img", "96", "--save-json",
                       "--nosave", "--project", "found", "--name", "tiles",
                       "--resample", "area"},
                      kTiles),
               kThresholds),
        folder_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    write_truth();
  }
  static void TearDownTestSuite() {
    if (!::testing::UnitTest::GetInstance()->Failed()) fs::remove_all(folder_);
  }

  static std::string weights() {
    return folder_ / "runs/train/exp/weights/last.safetensors";
  }
  static fs::path found() { return folder_ / "found/tiles/predictions.json"; }

  // Writes every second one of the forty most confident boxes of an image, as
  // labels and as annotations in COCO's format.
  static void write_truth() {
    Json truth = {{"images", Json::array()},
                  {"annotations", Json::array()},
                  {"categories", {{{"id", 0}, {"name", "thing"}}}}};
    for (int i = 1; i <= kImages; ++i) {
      truth["images"].push_back({{"id", i},
                                 {"file_name", std::to_string(i) + ".bmp"},
                                 {"height", kHeight},
                                 {"width", kWidth}});
    }
    std::map<int, int> met;
    for (const Json& box : read_json(found())) {
      const int image = box.at("image_id");
      const int place = met[image]++;
      const double x = box.at("bbox")[0], y = box.at("bbox")[1],
                   w = box.at("bbox")[2], h = box.at("bbox")[3];
      if (place % 2 == 0 || place >= 40 || w < 2 || h < 2) continue;
      truth["annotations"].push_back({{"id", truth["annotations"].size() + 1},
                                      {"image_id", image},
                                      {"category_id", 0},
                                      {"bbox", {x, y, w, h}},
                                      {"area", w * h},
                                      {"iscrowd", 0}});
      std::ofstream labels(
          folder_ / "labels" / (std::to_string(image) + ".txt"), std::ios::app);
      labels.precision(9);
      labels << "0 " << (x + w / 2) / kWidth << ' ' << (y + h / 2) / kHeight
             << ' ' << w / kWidth << ' ' << h / kHeight << '\n';
    }
    ASSERT_GT(truth["annotations"].size(), 10U);
    std::ofstream(folder_ / "truth.json") << truth.dump();
  }

  static ProgramResult validate(const std::string& name,
                                const std::vector<std::string>& more) {
    return run_program(
        joined(joined({program("headroom"), "val", "--data", "data.yaml",
                       "--weights", weights(), "--img", "96", "--name", name,
                       "--threads", "1", "--save-json", "--noplots"},
                      kThresholds),
               more),
        folder_);
  }
  static fs::path run(const std::string& name) {
    return folder_ / "runs/val" / name;
  }

  inline static fs::path folder_;
};

TEST_F(TiledValidation, IsDetectionInTilesScored) {
  const ProgramResult tiled = validate("tiled", kTiles);
  ASSERT_EQ(tiled.exit_code, 0) << tiled.err;
  EXPECT_EQ(text_of(run("tiled") / "predictions.json"), text_of(found()));

  const ProgramResult scored =
      run_program({program("headroom"), "val", "--detections", found().string(),
                   "--ground-truth", "truth.json", "--json"},
                  folder_);
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  const Json file = Json::parse(scored.out);
  const Json said = read_json(run("tiled") / "results.json");
  EXPECT_EQ(said.at("val_images"), kImages);
  EXPECT_EQ(said.at("val_labels"), file.at("objects"));
  const double map50 = said.at("map50");
  EXPECT_GT(map50, 0.05);
  EXPECT_LT(map50, 0.95);
  // The file's boxes are rounded to thousandths of a pixel.
  constexpr double kRounded = 1e-3;
  const Json& yolo = file.at("yolov5_style");
  EXPECT_NEAR(map50, yolo.at("mAP50").get<double>(), kRounded);
  EXPECT_NEAR(said.at("map").get<double>(), yolo.at("mAP50_95").get<double>(),
              kRounded);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(said.at("coco_stats_maxdets100")[i].get<double>(),
                file.at("coco_stats_maxdets100")[i].get<double>(), kRounded)
        << i;
  }
}

TEST_F(TiledValidation, IsTheSameByTwoProcessesAndAnotherThanOfWholeImages) {
  ASSERT_EQ(validate("one", kTiles).exit_code, 0);
  const ProgramResult two =
      validate("two", joined(kTiles, {"--processes", "2"}));
  ASSERT_EQ(two.exit_code, 0) << two.err;
  for (const char* file : {"results.json", "predictions.json"}) {
    EXPECT_EQ(text_of(run("one") / file), text_of(run("two") / file)) << file;
  }
  ASSERT_EQ(validate("whole", {}).exit_code, 0);
  EXPECT_NE(text_of(run("one") / "predictions.json"),
            text_of(run("whole") / "predictions.json"));
}

TEST_F(TiledValidation, RefusesAnImageThatTheHostCannotHold) {
  const ProgramResult refused =
      validate("refused", joined(kTiles, {"--host-memory-limit", "300KiB"}));
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("1.bmp is 373 KiB decoded, but "
                                     "--host-memory-limit is 300 KiB: use "
                                     "--host-memory-limit 381600B or more"));
}

}  // namespace
}  // namespace headroom::testing
