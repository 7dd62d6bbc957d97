// Pictures of a run do not change its results; the files of `headroom val`
// agree with its figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// The names of all pictures that YOLOv5 draws. The shapes have 9 images, that
// is two batches of 8.
const std::set<std::string> kPictures = {
    "F1_curve.png",          "PR_curve.png",          "P_curve.png",
    "R_curve.png",           "confusion_matrix.png",  "labels.jpg",
    "results.png",           "train_batch0.jpg",      "train_batch1.jpg",
    "train_batch2.jpg",      "val_batch0_labels.jpg", "val_batch0_pred.jpg",
    "val_batch1_labels.jpg", "val_batch1_pred.jpg"};

std::set<std::string> pictures_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string ending = entry.path().extension();
    if (ending != ".png" && ending != ".jpg") continue;
    EXPECT_GT(entry.file_size(), 1000u) << entry.path();
    names.insert(entry.path().filename());
  }
  return names;
}

// Writes the validation images of the shapes with annotations in COCO's format.
fs::path write_annotations(const fs::path& folder) {
  Json truth = {{"images", Json::array()},
                {"annotations", Json::array()},
                {"categories", Json::array()}};
  const fs::path labels =
      fs::path(shapes_data()).parent_path() / "labels" / "val";
  int64_t next = 1;
  int most = 0;
  for (const auto& entry : fs::directory_iterator(labels)) {
    const std::string stem = entry.path().stem();
    truth["images"].push_back({{"id", std::stoll(stem)}, {"file_name", stem}});
    std::ifstream lines(entry.path());
    int c = 0;
    double x = 0, y = 0, w = 0, h = 0;
    while (lines >> c >> x >> y >> w >> h) {
      constexpr double kSide = 128;
      most = std::max(most, c);
      truth["annotations"].push_back(
          {{"id", next++},
           {"image_id", std::stoll(stem)},
           {"category_id", c},
           {"bbox",
            {(x - w / 2) * kSide, (y - h / 2) * kSide, w * kSide, h * kSide}},
           {"area", w * h * kSide * kSide},
           {"iscrowd", 0}});
    }
  }
  for (int c = 0; c <= most; ++c) {
    truth["categories"].push_back(
        {{"id", c}, {"name", "class" + std::to_string(c)}});
  }
  const fs::path file = folder / "truth.json";
  std::ofstream(file) << truth.dump();
  return file;
}

// Two runs of two epochs by two processes, one of them with pictures, made
// once.
class Pictures : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::path(HEADROOM_BUILD_DIR) / "tests/runs/pictures";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const char* name : {"drawn", "plain"}) {
      std::vector<std::string> command = train_shapes(
          "8", {"--epochs", "2", "--processes", "2", "--name", name});
      if (name == std::string("plain")) command.push_back("--noplots");
      const ProgramResult result = run_program(command, folder_);
      ASSERT_EQ(result.exit_code, 0) << result.err;
    }
  }
  static void TearDownTestSuite() {
    if (!::testing::UnitTest::GetInstance()->Failed()) fs::remove_all(folder_);
  }
  static fs::path train(const std::string& name) {
    return folder_ / "runs/train" / name;
  }
  static std::string weights() {
    return (train("drawn") / "weights/last.safetensors").string();
  }
  static ProgramResult validate(const std::string& name,
                                const std::vector<std::string>& more) {
    std::vector<std::string> command = {
        program("headroom"), "val",     "--data",    shapes_data(),
        "--weights",         weights(), "--img",     "96",
        "--batch",           "8",       "--threads", "1",
        "--workers",         "1",       "--name",    name};
    command.insert(command.end(), more.begin(), more.end());
    return run_program(command, folder_);
  }
  static fs::path folder_;
};
fs::path Pictures::folder_;

TEST_F(Pictures, OfTrainingChangeNoBitOfIt) {
  EXPECT_EQ(pictures_in(train("drawn")), kPictures);
  EXPECT_EQ(pictures_in(train("plain")), std::set<std::string>());
  const std::vector<Json> drawn = read_lines(train("drawn") / "steps.jsonl");
  const std::vector<Json> plain = read_lines(train("plain") / "steps.jsonl");
  ASSERT_EQ(drawn.size(), plain.size());
  for (size_t i = 0; i < drawn.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "samples"}) {
      EXPECT_EQ(drawn[i].at(key), plain[i].at(key)) << key << " " << i;
    }
  }
  EXPECT_EQ(text_of(train("drawn") / "results.csv"),
            text_of(train("plain") / "results.csv"));
  EXPECT_EQ(text_of(train("drawn") / "weights/last.safetensors"),
            text_of(train("plain") / "weights/last.safetensors"));
}

TEST_F(Pictures, ValidationWritesTheSameDetectionsForAnyNumberOfProcesses) {
  const std::vector<std::string> files = {
      "--save-txt", "--save-conf", "--save-json", "--conf-thres", "0.0001"};
  std::vector<std::string> two = files;
  two.insert(two.end(), {"--processes", "2", "--noplots"});
  const ProgramResult one_process = validate("one", files);
  ASSERT_EQ(one_process.exit_code, 0) << one_process.err;
  ASSERT_EQ(validate("two", two).exit_code, 0);
  const fs::path one = folder_ / "runs/val/one",
                 other = folder_ / "runs/val/two";

  const std::set<std::string> of_training = {
      "labels.jpg", "results.png", "train_batch0.jpg", "train_batch1.jpg",
      "train_batch2.jpg"};
  std::set<std::string> expected = kPictures;
  for (const std::string& name : of_training) expected.erase(name);
  EXPECT_EQ(pictures_in(one), expected);
  EXPECT_EQ(pictures_in(other), std::set<std::string>());

  const std::string predictions = text_of(one / "predictions.json");
  EXPECT_EQ(predictions, text_of(other / "predictions.json"));
  const Json boxes = Json::parse(predictions);
  ASSERT_FALSE(boxes.empty());
  size_t lines = 0;
  for (const auto& entry : fs::directory_iterator(one / "labels")) {
    std::istringstream text(text_of(entry.path()));
    EXPECT_EQ(text.str(), text_of(other / "labels" / entry.path().filename()));
    for (std::string line; std::getline(text, line); ++lines) {
      EXPECT_EQ(std::count(line.begin(), line.end(), ' '), 5) << line;
    }
  }
  EXPECT_EQ(lines, boxes.size());

  // The detections in the file give the same figures as the validation.
  const ProgramResult scored =
      run_program({program("headroom"), "val", "--detections",
                   (one / "predictions.json").string(), "--ground-truth",
                   write_annotations(folder_).string(), "--json"},
                  folder_);
  ASSERT_EQ(scored.exit_code, 0) << scored.err;
  const Json file = Json::parse(scored.out);
  const Json said = read_json(one / "results.json");
  EXPECT_EQ(said.at("val_images"), 9);
  EXPECT_NEAR(said.at("map50").get<double>(),
              file.at("yolov5_style").at("mAP50").get<double>(), 0.01);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(said.at("coco_stats_maxdets100")[i].get<double>(),
                file.at("coco_stats_maxdets100")[i].get<double>(), 0.01)
        << i;
  }
  EXPECT_EQ(said.at("per_size").at("all").at("objects"), file.at("objects"));
  EXPECT_THAT((one_process.out + one_process.err), HasSubstr("COCO, small"))
      << one_process.out << one_process.err;
}

TEST_F(Pictures, ConfidencesNeedTheirFiles) {
  const ProgramResult refused = validate("refused", {"--save-conf"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("add --save-txt"));
  EXPECT_FALSE(fs::exists(folder_ / "runs/val/refused"));
}

}  // namespace
}  // namespace headroom::testing
