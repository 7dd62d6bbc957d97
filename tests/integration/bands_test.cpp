// A model of five bands (ch: 5) on TIFFs of five bands, from training to
// export: the layout changes nothing, a resumed run equals an uninterrupted
// one, and unsupported features are refused or skipped by name.
//
// The tests run real processes on drawn images. Only the last two bands show
// the difference between the classes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kSide = 128, kBands = 5, kTrain = 12, kVal = 4;
constexpr const char* kRun = "runs/train/exp";

// Writes an uncompressed TIFF with one strip and interleaved bands, without
// using the project's writer.
void write_tiff(const fs::path& file, const std::string& samples, int side,
                int bands) {
  constexpr uint16_t kShort = 3, kLong = 4;
  std::string bytes = "II*";
  const auto number = [&bytes](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(value >> (8 * i) & 255));
    }
  };
  number(0, 1);
  const auto count = static_cast<uint32_t>(samples.size());
  const uint32_t directory = 8 + count, bits = directory + 2 + 10 * 12 + 4;
  number(directory, 4);
  bytes += samples;
  struct Entry {
    uint16_t tag, type;
    uint32_t count, value;
  };
  const auto depth = static_cast<uint32_t>(bands);
  const auto pixels = static_cast<uint32_t>(side);
  const std::vector<Entry> entries = {
      {256, kLong, 1, pixels},    {257, kLong, 1, pixels},
      {258, kShort, depth, bits}, {259, kShort, 1, 1},  // no compression
      {262, kShort, 1, 1},                              // 0 is black
      {273, kLong, 1, 8},         {277, kShort, 1, depth},
      {278, kLong, 1, pixels},    {279, kLong, 1, count},
      {284, kShort, 1, 1}};
  number(static_cast<uint32_t>(entries.size()), 2);
  for (const Entry& entry : entries) {
    number(entry.tag, 2);
    number(entry.type, 2);
    number(entry.count, 4);
    number(entry.value, 4);
  }
  number(0, 4);
  for (int i = 0; i < bands; ++i) number(8, 2);
  std::ofstream(file, std::ios::binary) << bytes;
}

// Draws two rectangles, one of each class, on a pattern.
void write_image(const fs::path& folder, const std::string& split, int index) {
  struct Box {
    int x, y, w, h;
  };
  const Box boxes[] = {
      {8 + index * 5 % 40, 10 + index * 7 % 60, 24 + index % 9, 30},
      {70 + index * 3 % 20, 20 + index * 11 % 60, 28, 22 + index % 11}};
  std::string samples;
  for (int y = 0; y < kSide; ++y) {
    for (int x = 0; x < kSide; ++x) {
      for (int band = 0; band < kBands; ++band) {
        int value = 90 + (x * 7 + y * 13 + band * 31 + index * 17) % 40;
        for (int kind = 0; kind < 2; ++kind) {
          const Box& box = boxes[kind];
          const bool inside = x >= box.x && x < box.x + box.w && y >= box.y &&
                              y < box.y + box.h;
          if (inside && band == 3 + kind) value = 240;
        }
        samples.push_back(static_cast<char>(value));
      }
    }
  }
  const std::string name = std::to_string(index);
  write_tiff(folder / "images" / split / (name + ".tif"), samples, kSide,
             kBands);
  std::ofstream labels(folder / "labels" / split / (name + ".txt"));
  for (int kind = 0; kind < 2; ++kind) {
    const Box& box = boxes[kind];
    labels << kind << ' ' << (box.x + box.w / 2.0) / kSide << ' '
           << (box.y + box.h / 2.0) / kSide << ' '
           << static_cast<double>(box.w) / kSide << ' '
           << static_cast<double>(box.h) / kSide << '\n';
  }
}

class BandRuns : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests/runs/bands";
    fs::remove_all(folder_);
    for (const char* split : {"train", "val"}) {
      fs::create_directories(folder_ / "images" / split);
      fs::create_directories(folder_ / "labels" / split);
      const bool trains = std::string(split) == "train";
      for (int i = 0; i < (trains ? kTrain : kVal); ++i) {
        write_image(folder_, split, trains ? i : 100 + i);
      }
    }
    std::ofstream(folder_ / "data.yaml")
        << "train: images/train\nval: images/val\nnames: [fourth, fifth]\n";
    const ProgramResult result =
        train(folder_ / "two", {"--processes", "2", "--epochs", "3"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }
  static void TearDownTestSuite() {
    if (!::testing::UnitTest::GetInstance()->Failed()) fs::remove_all(folder_);
  }

  static std::string model() {
    return HEADROOM_SOURCE_DIR "/tests/support/models/five_bands.yaml";
  }
  static std::vector<std::string> command(const std::string& data,
                                          const std::string& cfg) {
    return headroom_command("train --data " + data + " --cfg " + cfg +
                            " --img 96 --batch 4 --threads 1 --workers 1 "
                            "--noautoanchor --precision fp64");
  }
  static ProgramResult train(const fs::path& where,
                             const std::vector<std::string>& more) {
    fs::create_directories(where);
    return run_program(joined(command(folder_ / "data.yaml", model()), more),
                       where);
  }
  static std::string weights() {
    return folder_ / "two" / kRun / "weights/last.safetensors";
  }

  inline static fs::path folder_;
};

TEST_F(BandRuns, TwoProcessesTrainAsOneAndAResumedRunIsTheWhole) {
  ProgramResult one =
      train(folder_ / "one", {"--processes", "1", "--epochs", "3"});
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const auto alone = read_lines(folder_ / "one" / kRun / "steps.jsonl");
  const auto both = read_lines(folder_ / "two" / kRun / "steps.jsonl");
  ASSERT_EQ(alone.size(), 9u);
  ASSERT_EQ(both.size(), 9u);
  for (size_t i = 0; i < alone.size(); ++i) {
    const double loss = alone[i].at("loss");
    EXPECT_NEAR(both[i].at("loss").get<double>(), loss, 1e-9 * loss) << i;
  }
  const fs::path parts = folder_ / "parts";
  ProgramResult part =
      train(parts, {"--processes", "2", "--epochs", "3", "--max-steps", "4"});
  ASSERT_EQ(part.exit_code, 0) << part.err;
  part = run_program({program("headroom"), "train", "--resume",
                      (parts / kRun).string(), "--max-steps", "9"},
                     parts);
  ASSERT_EQ(part.exit_code, 0) << part.err;
  const auto resumed = read_lines(parts / kRun / "steps.jsonl");
  ASSERT_EQ(resumed.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(resumed[i].at("loss").dump(), both[i].at("loss").dump()) << i;
  }
}

TEST_F(BandRuns, SplitImagesAreTheSameImages) {
  const ProgramResult split = train(
      folder_ / "split",
      {"--layout", "spatial=2", "--max-steps", "3", "--noval", "--noplots"});
  ASSERT_EQ(split.exit_code, 0) << split.err;
  const auto steps = read_lines(folder_ / "split" / kRun / "steps.jsonl");
  const auto both = read_lines(folder_ / "two" / kRun / "steps.jsonl");
  ASSERT_EQ(steps.size(), 3u);
  for (size_t i = 0; i < steps.size(); ++i) {
    const double loss = both[i].at("loss");
    EXPECT_NEAR(steps[i].at("loss").get<double>(), loss, 1e-9 * loss) << i;
  }
}

TEST_F(BandRuns, TheStartListsSkippedFeaturesAndPicturesAreDrawn) {
  const fs::path run = folder_ / "two" / kRun;
  EXPECT_THAT(text_of(run / "data_report.txt"),
              HasSubstr("hyp.hsv_h 0.015, hyp.hsv_s 0.7, hyp.hsv_v 0.4 change "
                        "nothing: they are about red, green and blue, and the "
                        "images have 5 bands (ch)\n"));
  for (const char* name :
       {"train_batch0.jpg", "val_batch0_labels.jpg", "val_batch0_pred.jpg"}) {
    EXPECT_TRUE(fs::exists(run / name)) << name;
  }
}

TEST_F(BandRuns, ValDetectAndExportTakeItsWeights) {
  const auto val = [&](const std::vector<std::string>& more) {
    return run_program(
        joined({program("headroom"), "val", "--data", folder_ / "data.yaml",
                "--weights", weights(), "--img", "96", "--threads", "1"},
               more),
        folder_);
  };
  EXPECT_EQ(val({}).exit_code, 0);
  const ProgramResult tiled = val({"--tile", "64", "--noplots"});
  EXPECT_EQ(tiled.exit_code, 0) << tiled.err;
  const ProgramResult found =
      run_program({program("headroom"), "detect", "--weights", weights(),
                   "--source", folder_ / "images/val", "--img", "96",
                   "--conf-thres", "0.001", "--save-crop", "--name", "found"},
                  folder_);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, HasSubstr("image 4/4 "));
  EXPECT_TRUE(fs::exists(folder_ / "runs/detect/found/100.jpg"));
  const ProgramResult exported =
      run_program({program("headroom"), "export", "--weights", weights(),
                   "--img", "96", "--include", "onnx", "torchscript"},
                  folder_);
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("images 1x5x96x96 -> "));
  const ProgramResult eight = run_program(
      {program("headroom"), "export", "--weights", weights(), "--img", "96",
       "--int8", "--data", folder_ / "data.yaml", "--calibration-images", "4"},
      folder_);
  EXPECT_EQ(eight.exit_code, 0) << eight.err;
  const ProgramResult smaller =
      run_program({program("headroom"), "prune", "--weights", weights(),
                   "--share", "0.2", "--output", folder_ / "small.safetensors"},
                  folder_);
  ASSERT_EQ(smaller.exit_code, 0) << smaller.err;
  const ProgramResult tuned = run_program(
      {program("headroom"), "train", "--data", folder_ / "data.yaml",
       "--weights", folder_ / "small.safetensors", "--img", "96", "--batch",
       "4", "--max-steps", "2", "--noval", "--noplots"},
      folder_);
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;

  // A model table beside the weights may be the user's own file, so it is not
  // overwritten.
  const auto prune_again = [&] {
    return run_program(
        {program("headroom"), "prune", "--weights", weights(), "--share", "0.2",
         "--output", folder_ / "small.safetensors"},
        folder_);
  };
  EXPECT_EQ(prune_again().exit_code, 0);
  std::ofstream(folder_ / "small.yaml") << "nc: 3\n";
  const ProgramResult refused = prune_again();
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("small.yaml, which is there and was not "
                                     "written by headroom prune"));
}

TEST_F(BandRuns, TilesKeepAllBands) {
  const fs::path tiles = folder_ / "tiles";
  const ProgramResult cut =
      run_program({program("headroom"), "tile", "--data", folder_ / "data.yaml",
                   "--output", tiles, "--size", "80", "--min-visible", "0.2"},
                  folder_);
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_TRUE(fs::exists(tiles / "images/train/0_0_0.tif"));
  const ProgramResult trained = run_program(
      joined(command(tiles / "data.yaml", model()),
             {"--max-steps", "2", "--noval", "--noplots", "--random-crop"}),
      tiles);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
  const auto report = text_of(tiles / kRun / "data_report.txt");
  EXPECT_THAT(report, ::testing::Not(HasSubstr("left out")));
}

TEST_F(BandRuns, OtherNumbersOfBandsAreRefusedOrLeftOut) {
  const ProgramResult colours = run_program(
      joined(command(folder_ / "data.yaml", "yolov5n"), {"--max-steps", "1"}),
      folder_);
  EXPECT_EQ(colours.exit_code, 4) << colours.err;
  EXPECT_THAT(
      colours.err,
      HasSubstr("0.tif: unreadable image (5 bands, but the model's ch is "
                "3 or 1: use a model with ch: 5, or images of colours)"));
  // One image has another number of bands than the others.
  const fs::path mixed = folder_ / "mixed";
  fs::create_directories(mixed);
  fs::copy(folder_ / "images", mixed / "images", fs::copy_options::recursive);
  fs::copy(folder_ / "labels", mixed / "labels", fs::copy_options::recursive);
  fs::copy(folder_ / "data.yaml", mixed / "data.yaml");
  write_tiff(mixed / "images/train/0.tif", std::string(kSide * kSide * 4, 'a'),
             kSide, 4);
  const ProgramResult goes_on =
      run_program(joined(command(mixed / "data.yaml", model()),
                         {"--max-steps", "1", "--noval", "--noplots"}),
                  mixed);
  EXPECT_EQ(goes_on.exit_code, 0) << goes_on.err;
  EXPECT_THAT(
      text_of(mixed / kRun / "data_report.txt"),
      HasSubstr("0.tif: unreadable image (4 bands, but the model's ch is "
                "5: use a model with ch: 4, or images of 5 bands): "
                "image and its boxes left out\n"));
}

// All tensors except those of the first convolution are loaded, here from the
// model of five bands into a model of colour images.
TEST_F(BandRuns, WeightsOfAnotherNumberOfBandsAreTakenWhereTheyFit) {
  const fs::path where = folder_ / "transfer";
  fs::create_directories(where);
  std::string text = text_of(model());
  text.replace(text.find("ch: 5"), 5, "ch: 3");
  std::ofstream(where / "colours.yaml") << text;
  const ProgramResult started = run_program(
      joined(
          command(shapes_data(), "colours.yaml"),
          {"--weights", weights(), "--max-steps", "1", "--noval", "--noplots"}),
      where);
  ASSERT_EQ(started.exit_code, 0) << started.err;
  EXPECT_THAT(text_of(where / kRun / "events.jsonl"),
              HasSubstr("model.0.conv.weight is [16, 5, 6, 6] there and [16, "
                        "3, 6, 6] here"));
}

}  // namespace
}  // namespace headroom::testing
