#include "worker/data/labels/verification.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "tests/support/error_text.h"
#include "tests/worker/data/data_files.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(Verification, ACorrectedCopyHasNoFaultAndTheSameBoxes) {
  const TemporaryFolder folder;
  folder.write("in/images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  const std::string labels = "0 .5 .5 .2 .2\n1 .9 .5 .4 .2\n1 .5 .5 0 .2\nx\n";
  folder.write("in/labels/1.txt", labels);
  folder.write("in/images/2.jpg", "<html>");
  const fs::path yaml = folder.write(
      "in/data.yaml", "train: images\nval: images\nnames: [a, b]\n");
  const configs::DataConfig config = configs::load_data_config(yaml);
  const auto splits = verify_data(config, {});
  ASSERT_EQ(splits.size(), 2u);
  EXPECT_EQ(splits[0].report.num_faults(), 4);
  EXPECT_EQ(splits[0].refusal, "");
  write_corrected_copy(splits, config.names, folder.path() / "out");
  EXPECT_EQ(read_bytes(folder.path() / "in/labels/1.txt"), labels);

  const configs::DataConfig copy =
      configs::load_data_config(folder.path() / "out/data.yaml");
  EXPECT_EQ(copy.names, config.names);
  const auto clean = verify_data(copy, {});
  EXPECT_EQ(clean[0].report.num_faults(), 0);
  ASSERT_THAT(clean[0].images, SizeIs(1));
  EXPECT_EQ(clean[0].images[0].boxes, splits[0].images[0].boxes);
  EXPECT_EQ(read_bytes(clean[0].images[0].image),
            read_bytes(folder.path() / "in/images/1.bmp"));
  EXPECT_THROW(
      write_corrected_copy(splits, config.names, folder.path() / "out"), Error);
}

TEST(Verification, ACorrectedCopyKeepsOutlines) {
  const TemporaryFolder folder;
  folder.write("in/images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  folder.write("in/labels/1.txt", "0 .1 .1 .6 .1 .3 .7\n0 .5 .5 0 .2\n");
  const configs::DataConfig config = configs::load_data_config(
      folder.write("in/data.yaml", "train: images\nval: images\nnames: [a]\n"));
  IndexOptions options;
  options.keep_outlines = true;
  write_corrected_copy(verify_data(config, options), config.names,
                       folder.path() / "out");
  EXPECT_EQ(read_bytes(folder.path() / "out/labels/train/1.txt"),
            "0 0.1 0.1 0.6 0.1 0.3 0.7\n");
}

TEST(Verification, FaultsOfOutlinesAreTrainingsWithAndWithoutOutlines) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  folder.write("train.json", R"({"images": [{"id": 1, "file_name": "1.bmp"}],
"categories": [{"id": 1, "name": "a"}], "annotations": [
{"image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5],
 "segmentation": [[1, 1, 5, 1, 5, 5], [1, 1, 5, 1]]},
{"image_id": 1, "category_id": 1, "bbox": [2, 2, 5, 5],
 "segmentation": [[1, 1, 5, 1, 5]]},
{"image_id": 1, "category_id": 1, "bbox": [3, 3, 5, 5],
 "segmentation": [[1, 1, 5, 1, 5, 5]]}]})");
  const configs::DataConfig config = configs::load_data_config(
      folder.write("data.yaml",
                   "train: train.json\nval: train.json\nimages: images\n"
                   "names: [a]\n"));
  IndexOptions options;
  for (const bool keep : {false, true}) {
    options.keep_outlines = keep;
    const DataReport training =
        index_dataset(config, Split::kTrain, options).report;
    EXPECT_EQ(training.num_faults(), 2) << keep;
    EXPECT_THAT(training.lines(9).at(1),
                HasSubstr("train.json:3: bad line (a box of image 1: "
                          "segmentation has a part"));
    for (const bool verified_keep : {false, true}) {
      options.keep_outlines = verified_keep;
      EXPECT_EQ(verify_data(config, options)[0].report.lines(9),
                training.lines(9));
    }
  }
}

TEST(Verification, ACopyIsCompleteOrAbsent) {
  const TemporaryFolder folder;
  folder.write("in/images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  folder.write("in/images/2.bmp", encode_bmp(test_picture(12, 16, 2)));
  for (const char* label : {"1.txt", "2.txt"}) {
    folder.write(std::string("in/labels/") + label, "0 .5 .5 .2 .2\n");
  }
  const configs::DataConfig config = configs::load_data_config(
      folder.write("in/data.yaml", "train: images\nval: images\nnames: [a]\n"));
  const auto splits = verify_data(config, {});
  fs::remove(folder.path() / "in/images/2.bmp");
  EXPECT_THROW(
      write_corrected_copy(splits, config.names, folder.path() / "out"), Error);
  int left = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    ++left;
    EXPECT_EQ(entry.path().filename(), "in");
  }
  EXPECT_EQ(left, 1);
}

TEST(Verification, UnknownClassesAreNamedAndRefused) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n7 .5 .5 .4 .4\n");
  const auto splits =
      verify_data(configs::load_data_config(folder.write(
                      "data.yaml", "train: images\nval: images\nnames: [a]\n")),
                  {});
  EXPECT_EQ(splits[0].refusal, "labels have unknown classes");
  EXPECT_THAT(verification_text(splits, false),
              HasSubstr("labels/1.txt:2: bad class (class 7, but"));
}

TEST(Verification, ASplitWithoutBoxesIsRefusedInTheWordsOfTraining) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  folder.write("Labels/1.txt", "0 .5 .5 .2 .2\n");
  const configs::DataConfig config = configs::load_data_config(
      folder.write("data.yaml", "train: images\nval: images\nnames: [a]\n"));
  const auto splits = verify_data(config, {});
  const std::string looked = (folder.path() / "labels/1.txt").string();
  EXPECT_THAT(splits[0].refusal,
              HasSubstr("labels of the first are looked for in " + looked));
  EXPECT_THAT(splits[0].remedy, HasSubstr("put labels there"));
  EXPECT_EQ(error_text([&] { index_dataset(config, Split::kTrain); }),
            "[data] " + splits[0].refusal + ": " + splits[0].remedy);
}

TEST(Verification, AnImageInAnotherFolderThanFileNameSaysIsFound) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", encode_bmp(test_picture(12, 16, 1)));
  const std::string coco = R"({"images": [{"id": 1,
"file_name": "data/upload/1.bmp"}], "annotations": [{"image_id": 1,
"category_id": 1, "bbox": [1, 1, 4, 4]}], "categories": [{"id": 1,
"name": "a"}]})";
  folder.write("t.json", coco);
  const auto splits = verify_data(
      configs::load_data_config(folder.write(
          "data.yaml",
          "train: t.json\nval: t.json\nimages: images\nnames: [a]\n")),
      {});
  EXPECT_THAT(verification_text(splits, false),
              HasSubstr("images/1.bmp is there: remove the folders"));
}

TEST(Verification, BloodCellsHaveTwoZeroAreaBoxes) {
  const fs::path root = shared_data_set("bccd");
  if (!fs::exists(root)) GTEST_SKIP() << kSharedDataMissing;
  const auto splits =
      verify_data(configs::load_data_config(root / "data.yaml"), {});
  ASSERT_EQ(splits.size(), 3u);
  const auto json = nlohmann::json::parse(verification_json(splits));
  EXPECT_EQ(json["faults"], 2);
  std::vector<std::string> found;
  for (const auto& split : json["splits"]) {
    EXPECT_EQ(split["refusal"], "");
    for (const auto& fault : split["faults"]) {
      EXPECT_EQ(fault["kind"], "zero size");
      EXPECT_EQ(fault["fix"], "box dropped");
      EXPECT_GT(fault["line"].get<int>(), 0);
      found.push_back(
          fs::path(fault["file"].get<std::string>()).stem().string());
    }
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAre("BloodImage_00338",
                                                     "BloodImage_00343"));
}

TEST(Verification, EveryBadImageHasItsOwnVerdict) {
  const fs::path root = shared_data_set("badimages");
  if (!fs::exists(root)) GTEST_SKIP() << kSharedDataMissing;
  const TemporaryFolder folder;
  const std::string source = fs::canonical(root).string();
  const auto splits =
      verify_data(configs::load_data_config(folder.write(
                      "data.yaml", "train: " + source + "\nval: " + source +
                                       "\nnames: [a]\n")),
                  {});
  const std::string text = verification_text(splits, true);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(root)) {
    ++files;
    EXPECT_THAT(text, HasSubstr(entry.path().filename().string() + ": "));
  }
  EXPECT_GE(files, 39);
  EXPECT_THAT(text, HasSubstr("made_lfs_pointer.jpg: unreadable image (a Git "
                              "LFS pointer"));
  EXPECT_THAT(text, HasSubstr("sharp_exif6_Portrait_6.jpg: sound, 450 x 600"));
}

}  // namespace
}  // namespace headroom::labels
