// Tests the files that a run leaves, and the figures that `headroom val` prints
// for the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  std::string line;
  while (std::getline(file, line)) lines.push_back(line);
  return lines;
}

// One run of 3 epochs by 2 processes, made once for all tests of this file.
class Results : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests/runs/results";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    const ProgramResult result = run_program(
        {program("headroom"), "train", "--data", shapes_data(), "--cfg",
         "yolov5n", "--img", "96", "--batch", "8", "--epochs", "3",
         "--processes", "2", "--threads", "1", "--workers", "1"},
        folder_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    err_ = result.err;
  }
  static void TearDownTestSuite() {
    if (!::testing::UnitTest::GetInstance()->Failed()) fs::remove_all(folder_);
  }
  static fs::path run() { return folder_ / "runs/train/exp"; }
  static fs::path folder_;
  static std::string err_;
};
fs::path Results::folder_;
std::string Results::err_;

TEST_F(Results, EveryPromisedFileIsThere) {
  for (const char* name :
       {"plan.json", "run.yaml", "steps.jsonl", "events.jsonl", "results.csv",
        "summary.json", "weights/best.safetensors", "weights/last.safetensors",
        "checkpoints/step-15/MANIFEST.json",
        "checkpoints/step-10/MANIFEST.json"}) {
    EXPECT_TRUE(fs::exists(run() / name)) << name;
  }
  EXPECT_FALSE(fs::exists(run() / "checkpoints/step-5"));
  bool tensorboard = false;
  for (const auto& entry : fs::directory_iterator(run())) {
    tensorboard |=
        entry.path().filename().string().starts_with("events.out.tfevents.");
  }
  EXPECT_TRUE(tensorboard);
}

TEST_F(Results, DetectAndExportReadItsWeights) {
  const std::string weights = (run() / "weights/best.safetensors").string();
  const fs::path images =
      fs::path(shapes_data()).parent_path() / "images" / "val";
  const ProgramResult detected = run_program(
      {program("headroom"), "detect", "--weights", weights, "--source",
       images.string(), "--img", "96", "--tile", "96", "--conf-thres", "0.001",
       "--save-csv", "--save-json", "--name", "found"},
      folder_);
  ASSERT_EQ(detected.exit_code, 0) << detected.err;
  EXPECT_THAT(detected.out, HasSubstr("image 9/9 "));
  const fs::path found = folder_ / "runs/detect/found";
  const Json boxes = read_json(found / "predictions.json");
  ASSERT_FALSE(boxes.empty());
  EXPECT_EQ(lines_of(found / "predictions.csv").size(), boxes.size() + 1);
  EXPECT_EQ(std::distance(fs::directory_iterator(found), {}), 9 + 2);

  const ProgramResult exported = run_program(
      {program("headroom"), "export", "--weights", weights, "--img", "96"},
      folder_);
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("images 1x3x96x96 -> output0 1x567x8"));
  EXPECT_TRUE(fs::exists(run() / "weights/best.onnx"));
}

TEST_F(Results, EachSampleIsUsedExactlyOncePerEpoch) {
  std::map<int, std::multiset<int>> epochs;
  for (const Json& step : read_lines(run() / "steps.jsonl")) {
    for (const int sample : step.at("samples")) {
      epochs[step.at("epoch").get<int>()].insert(sample);
    }
  }
  ASSERT_EQ(epochs.size(), 3u);
  std::multiset<int> all;
  for (int sample = 0; sample < 37; ++sample) all.insert(sample);
  for (const auto& [epoch, samples] : epochs) EXPECT_EQ(samples, all) << epoch;
}

TEST_F(Results, StepsHaveTheirFields) {
  const std::vector<Json> steps = read_lines(run() / "steps.jsonl");
  ASSERT_EQ(steps.size(), 15u);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].at("step"), i);
    EXPECT_EQ(steps[i].at("generation"), 1);
    EXPECT_GT(steps[i].at("images_per_second").get<double>(), 0);
    ASSERT_EQ(steps[i].at("memory").size(), 2u);
    for (const Json& rank : steps[i].at("memory")) {
      EXPECT_GT(rank.at("measured_peak_bytes").get<int64_t>(), 1 << 20);
    }
  }
}

TEST_F(Results, CsvHasYolov5sColumnsAndARowAnEpoch) {
  const std::vector<std::string> lines = lines_of(run() / "results.csv");
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0],
            "epoch,train/box_loss,train/obj_loss,train/cls_loss,"
            "metrics/precision,metrics/recall,metrics/mAP_0.5,"
            "metrics/mAP_0.5:0.95,val/box_loss,val/obj_loss,val/cls_loss,"
            "x/lr0,x/lr1,x/lr2");
  for (size_t row = 1; row < lines.size(); ++row) {
    EXPECT_EQ(std::count(lines[row].begin(), lines[row].end(), ','), 13);
    EXPECT_EQ(lines[row].substr(0, 2), std::to_string(row - 1) + ",");
  }
}

TEST_F(Results, EventsHaveReadableReasons) {
  std::set<std::string> kinds;
  for (const Json& event : read_lines(run() / "events.jsonl")) {
    kinds.insert(event.at("event").get<std::string>());
    EXPECT_FALSE(event.at("reason").get<std::string>().empty()) << event.dump();
  }
  for (const char* kind : {"generation", "checkpoint", "validation"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
}

TEST_F(Results, ValOfTheBestWeightsGivesTheSummarysMetrics) {
  const Json summary = read_json(run() / "summary.json");
  for (const std::string processes : {"1", "2"}) {
    const ProgramResult result = run_program(
        {program("headroom"), "val", "--data", shapes_data(), "--weights",
         (run() / "weights/best.safetensors").string(), "--img", "96",
         "--batch", "8", "--processes", processes, "--json"},
        folder_);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const Json metrics = Json::parse(result.out, nullptr, false);
    ASSERT_TRUE(metrics.is_object()) << result.out;
    for (const char* key :
         {"map50", "map", "coco_map50", "coco_map", "precision", "recall"}) {
      EXPECT_NEAR(metrics.at(key).get<double>(), summary.at(key).get<double>(),
                  1e-4)
          << key;
    }
  }
}

TEST_F(Results, ValOnOtherClassesNamesBothNumbers) {
  const std::string data =
      "path: " + fs::path(shapes_data()).parent_path().string() +
      "\ntrain: images/train\nval: images/val\nnames: [a, b, c, d, e]\n";
  std::ofstream(folder_ / "five.yaml") << data;
  const auto val = [&](const std::vector<std::string>& flags) {
    return run_program(joined({program("headroom"), "val", "--weights",
                               run() / "weights/best.safetensors", "--img",
                               "96", "--name", "other"},
                              flags),
                       folder_);
  };
  const ProgramResult more = val({"--data", "five.yaml"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err,
              HasSubstr("best.safetensors has 3 classes, but " +
                        (folder_ / "five.yaml").string() + " names 5: judge"));
  EXPECT_THAT(more.err, Not(HasSubstr("model.24")));
  std::string swapped = text_of(shapes_data());
  swapped.replace(swapped.find("path: ."), 7,
                  "path: " + fs::path(shapes_data()).parent_path().string());
  swapped.replace(swapped.find("1: rectangle"), 12, "1: triangle");
  swapped.replace(swapped.find("2: triangle"), 11, "2: rectangle");
  std::ofstream(folder_ / "swapped.yaml") << swapped;
  const ProgramResult other = val({"--data", "swapped.yaml"});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.err, HasSubstr("class 1 is 'triangle' in " +
                                   (folder_ / "swapped.yaml").string() +
                                   ", but 'rectangle' in "));
  const ProgramResult one = val({"--data", shapes_data(), "--single-cls"});
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err,
              HasSubstr("has 3 classes, but --single-cls makes one of all: "
                        "leave --single-cls out, or judge weights that were "
                        "trained with it"));
}

TEST_F(Results, ValOfWeightsOfOneClassForAllNeedsNoFlag) {
  const ProgramResult trained =
      run_program(train_shapes("8", {"--max-steps", "1", "--noval", "--noplots",
                                     "--single-cls", "--name", "single"}),
                  folder_);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const std::string weights = "runs/train/single/weights/last.safetensors";
  const auto val = [&](const std::string& name,
                       const std::vector<std::string>& flags) {
    return run_program(
        joined({program("headroom"), "val", "--data", shapes_data(),
                "--weights", weights, "--noplots", "--name", name},
               flags),
        folder_);
  };
  const ProgramResult judged = val("unsaid", {});
  EXPECT_EQ(judged.exit_code, 0) << judged.err;
  EXPECT_THAT(judged.err,
              HasSubstr("--single-cls: all classes are judged as one, as "));
  const ProgramResult said = val("said", {"--single-cls"});
  EXPECT_EQ(read_json(folder_ / "runs/val/unsaid/results.json"),
            read_json(folder_ / "runs/val/said/results.json"));
}

// Epochs that are shorter than their validation are not all validated. Training
// does not depend on it.
TEST_F(Results, AShareOfTheTimeLeavesValidationsOut) {
  const auto train = [&](const std::string& share) {
    const ProgramResult result = run_program(
        train_shapes("8", {"--epochs", "5", "--processes", "2", "--val-share",
                           share, "--noplots", "--name", "share" + share}),
        folder_);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("--val-share 0 validates every epoch") !=
                  std::string::npos,
              share != "0")
        << result.err;
    return folder_ / "runs/train" / ("share" + share);
  };
  const fs::path all = train("0"), some = train("0.01");
  const auto validated = [](const fs::path& run) {
    std::vector<int> epochs;
    for (const Json& event : read_lines(run / "events.jsonl")) {
      if (event.at("event") == "validation") {
        epochs.push_back(event.at("epoch").get<int>());
      }
    }
    return epochs;
  };
  EXPECT_EQ(validated(all), (std::vector<int>{0, 1, 2, 3, 4}));
  const std::vector<int> epochs = validated(some);
  ASSERT_GE(epochs.size(), 2u);
  EXPECT_LT(epochs.size(), 5u);
  EXPECT_EQ(epochs.front(), 0);
  EXPECT_EQ(epochs.back(), 4);

  const std::vector<std::string> rows = lines_of(some / "results.csv");
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_THAT(rows[1], Not(HasSubstr(",,")));
  EXPECT_THAT(rows[2], HasSubstr(",,,,,,,"));
  EXPECT_THAT(rows[5], Not(HasSubstr(",,")));
  EXPECT_EQ(rows[5], lines_of(all / "results.csv")[5]);
  const std::vector<Json> a = read_lines(all / "steps.jsonl"),
                          b = read_lines(some / "steps.jsonl");
  ASSERT_EQ(a.size(), 25u);
  ASSERT_EQ(b.size(), 25u);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].at("loss"), b[i].at("loss"));
    EXPECT_EQ(a[i].at("grad_norm"), b[i].at("grad_norm"));
  }
  EXPECT_EQ(text_of(all / "weights/last.safetensors"),
            text_of(some / "weights/last.safetensors"));
}

TEST_F(Results, OnlyTheResultGoesToStdout) {
  const ProgramResult result =
      run_program({program("headroom"), "train", "--data", shapes_data(),
                   "--cfg", "yolov5n", "--img", "64", "--batch", "8",
                   "--max-steps", "1", "--json", "--name", "json"},
                  folder_);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(Json::parse(result.out, nullptr, false).is_object())
      << result.out;
}

TEST_F(Results, SyntheticInputNeedsNoData) {
  const ProgramResult result =
      run_program({program("headroom"), "train", "--synthetic-input", "--cfg",
                   "yolov5n", "--img", "64", "96", "--batch", "4",
                   "--max-steps", "2", "--name", "synthetic"},
                  folder_);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_lines(folder_ / "runs/train/synthetic/steps.jsonl").size(),
            2u);
}

}  // namespace
}  // namespace headroom::testing
