// A data set gives the same training in each of three formats; verify names its
// faults; headroom returns the worker's exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/integration/headroom_run.h"

namespace headroom::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kMissing =
    "../shared/datasets/bccd is not here; it holds real images and labels";
const std::vector<std::string> kNames = {"RBC", "WBC", "Platelets"};

fs::path blood_cells() {
  return fs::weakly_canonical(fs::path(HEADROOM_SOURCE_DIR) /
                              "../shared/datasets/bccd");
}

std::string write(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
  return file.string();
}

// Converts a split's XML to COCO's JSON with a separate reader, so that the
// test does not use the code under test.
void convert(const std::string& split, const fs::path& file) {
  static const std::regex object(
      "<name>(\\w+)</name>[^]*?<xmin>(\\d+)</xmin>\\s*<ymin>(\\d+)</ymin>\\s*"
      "<xmax>(\\d+)</xmax>\\s*<ymax>(\\d+)</ymax>");
  Json json = {{"images", Json::array()}, {"annotations", Json::array()}};
  for (size_t i = 0; i < kNames.size(); ++i) {
    json["categories"].push_back({{"id", 7 * i + 3}, {"name", kNames[i]}});
  }
  std::istringstream stems(
      text_of(blood_cells() / "voc/ImageSets/Main" / (split + ".txt")));
  int image = 0;
  for (std::string stem; stems >> stem;) {
    json["images"].push_back(
        {{"id", ++image}, {"file_name", split + "/" + stem + ".jpg"}});
    const std::string xml =
        text_of(blood_cells() / "voc/Annotations" / (stem + ".xml"));
    for (std::sregex_iterator at(xml.begin(), xml.end(), object), end;
         at != end; ++at) {
      const auto number = [&](size_t i) { return std::stoi((*at)[i]); };
      const auto name = std::find(kNames.begin(), kNames.end(), (*at)[1].str());
      json["annotations"].push_back(
          {{"id", json["annotations"].size() + 1},
           {"image_id", image},
           {"category_id", 7 * (name - kNames.begin()) + 3},
           {"bbox",
            {number(2), number(3), number(4) - number(2),
             number(5) - number(3)}}});
    }
  }
  write(file, json.dump());
}

std::vector<Json> steps_of(const std::string& data, const std::string& name,
                           const fs::path& folder) {
  const ProgramResult run = run_program(
      headroom_command("train --data " + data + " --name " + name +
                       " --cfg yolov5n --img 64 --batch 4 --max-steps 3 "
                       "--noval --threads 1 --workers 1 --memory-limit 2GiB"),
      folder);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return read_lines(folder / "runs/train" / name / "steps.jsonl");
}

TEST(DataFormats, VocCocoAndYoloTrainTheSame) {
  if (!fs::exists(blood_cells())) GTEST_SKIP() << kMissing;
  const fs::path folder = fresh_folder();
  const std::string names = "names: [RBC, WBC, Platelets]\n";
  const std::string root = blood_cells().string();
  for (const char* split : {"train", "val"}) {
    convert(split, folder / (std::string(split) + ".json"));
  }
  const auto voc =
      steps_of(write(folder / "voc.yaml", "path: " + root + "/voc\n" + names),
               "voc", folder);
  const auto coco = steps_of(
      write(folder / "coco.yaml", "train: train.json\nval: val.json\nimages: " +
                                      root + "/images\n" + names),
      "coco", folder);
  const auto yolo = steps_of(root + "/data.yaml", "yolo", folder);
  ASSERT_EQ(voc.size(), 3u);
  ASSERT_EQ(coco.size(), 3u);
  ASSERT_EQ(yolo.size(), 3u);
  for (size_t i = 0; i < voc.size(); ++i) {
    for (const char* key : {"loss", "box", "obj", "cls", "grad_norm"}) {
      EXPECT_EQ(voc[i][key].get<double>(), coco[i][key].get<double>())
          << key << " of step " << i;
    }
  }
  const double exact = voc[0]["loss"], rounded = yolo[0]["loss"];
  EXPECT_LE(std::abs(exact - rounded), 1e-4 * exact);
}

ProgramResult verify(const std::vector<std::string>& words) {
  return run_program(joined(headroom_command("verify"), words), fresh_folder());
}

TEST(Verify, TwoZeroAreaBoxesAreWarningsUnlessStrict) {
  if (!fs::exists(blood_cells())) GTEST_SKIP() << kMissing;
  const std::string data = (blood_cells() / "data.yaml").string();
  const ProgramResult found = verify({"--data", data});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  for (const char* image : {"BloodImage_00338.txt:", "BloodImage_00343.txt:"}) {
    EXPECT_THAT(found.out, HasSubstr(image));
  }
  const ProgramResult strict = verify({"--data", data, "--strict"});
  EXPECT_EQ(strict.exit_code, 4);
  EXPECT_THAT(strict.err, HasSubstr("has 2 faults"));
}

TEST(Verify, RefusalsAreOneClearLine) {
  const ProgramResult no_data = verify({"--data", "nowhere.yaml"});
  EXPECT_EQ(no_data.exit_code, 2);
  EXPECT_THAT(no_data.err, HasSubstr("nowhere.yaml"));
  EXPECT_EQ(verify({"--dta", "x"}).exit_code, 2);
  const ProgramResult half =
      run_program(headroom_command("val --detections d.json"), fresh_folder());
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.err, HasSubstr("--ground-truth is missing"));
  const ProgramResult none = run_program(
      headroom_command("val --detections d.json --ground-truth g.json"),
      fresh_folder());
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.err, HasSubstr("g.json: there is no such file"));
}

}  // namespace
}  // namespace headroom::testing
