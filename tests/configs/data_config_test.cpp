#include "configs/data_config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

class DataConfigTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder :
         {"set/images/train", "set/images/val", "set/images/test"}) {
      folder_.folder(folder);
    }
    folder_.write("set/more.txt", "./images/train/a.jpg\n");
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }

  DataConfig load(const std::string& text,
                  const std::string& name = "set/data.yaml") {
    return load_data_config(folder_.write(name, text));
  }

  // The text of the refusal, without the path of this test's folder.
  std::string refusal(const std::string& text,
                      const std::string& name = "set/data.yaml") {
    std::string said = testing::refusal_of([&] { load(text, name); });
    const std::string root = folder_.path().string() + "/";
    for (size_t i = said.find(root); i != std::string::npos;
         i = said.find(root)) {
      said.erase(i, root.size());
    }
    return said;
  }

  const std::string kSplits = "train: images/train\nval: images/val\n";
  testing::TemporaryFolder folder_;
};

TEST_F(DataConfigTest, UltralyticsForm) {
  const DataConfig config = load(
      "path: ../set  # root\n"
      "train: images/train\n"
      "val: [images/val, more.txt]\n"
      "test:\n"
      "names:\n"
      "  0: car\n"
      "  1: bus\n"
      "download: |\n"
      "  import os\n");
  EXPECT_EQ(config.file, at("set/data.yaml"));
  EXPECT_EQ(config.names, (std::vector<std::string>{"car", "bus"}));
  EXPECT_EQ(config.train, Paths{at("set/images/train")});
  EXPECT_EQ(config.val, (Paths{at("set/images/val"), at("set/more.txt")}));
  EXPECT_TRUE(config.test.empty());
  EXPECT_EQ(config.test_split_error, "");
}

TEST_F(DataConfigTest, RoboflowForm) {
  folder_.folder("robo/train/images");
  folder_.folder("robo/valid/images");
  folder_.folder("robo/test/images");
  const DataConfig config = load(
      "train: ../train/images\n"
      "val: ../valid/images\n"
      "test: ../test/images\n"
      "nc: 2\n"
      "names: ['car', 'bus']\n"
      "roboflow:\n"
      "  workspace: w\n"
      "  version: 3\n",
      "robo/data.yaml");
  EXPECT_EQ(config.train, Paths{at("robo/train/images")});
  EXPECT_EQ(config.val, Paths{at("robo/valid/images")});
  EXPECT_EQ(config.test, Paths{at("robo/test/images")});
}

TEST_F(DataConfigTest, TheWrittenPlaceComesBeforeTheFallback) {
  // This is ../train/images seen from robo/data.yaml.
  folder_.folder("train/images");
  folder_.folder("robo/train/images");
  const DataConfig config =
      load("train: ../train/images\nval: ../train/images\nnames: [a]\n",
           "robo/data.yaml");
  EXPECT_EQ(config.train, Paths{at("train/images")});
}

TEST_F(DataConfigTest, AbsolutePaths) {
  const DataConfig config =
      load("train: " + at("set/images/train").string() +
               "\nval: " + at("set/more.txt").string() + "\nnames: [a]\n",
           "elsewhere/data.yaml");
  EXPECT_EQ(config.train, Paths{at("set/images/train")});
  EXPECT_EQ(config.val, Paths{at("set/more.txt")});
}

TEST_F(DataConfigTest, PathIsRelativeToTheFileThenToTheWorkingFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_.path());
  const DataConfig config =
      load("path: set\n" + kSplits + "names: [a]\n", "yaml/data.yaml");
  folder_.folder("yaml/set/images/train");
  folder_.folder("yaml/set/images/val");
  const DataConfig beside =
      load("path: set\n" + kSplits + "names: [a]\n", "yaml/data.yaml");
  fs::current_path(before);
  EXPECT_EQ(config.train, Paths{at("set/images/train")});
  EXPECT_EQ(beside.train, Paths{at("yaml/set/images/train")});
}

TEST_F(DataConfigTest, NamesAreText) {
  EXPECT_EQ(load(kSplits + "names: [no, 1, \"x y\", 2.50]\n").names,
            (std::vector<std::string>{"no", "1", "x y", "2.50"}));
  EXPECT_EQ(load(kSplits + "names: {1: b, 0: a}\n").names,
            (std::vector<std::string>{"a", "b"}));
}

TEST_F(DataConfigTest, NamesThatAreWrong) {
  EXPECT_EQ(refusal(kSplits + "names:\n  0: a\n  2: c\n"),
            "[config] set/data.yaml:5:3: class 2 is named, but class 1 is not: "
            "number the classes 0, 1, 2, ... without a gap");
  EXPECT_EQ(refusal(kSplits + "names:\n  0: a\n  one: c\n"),
            "[config] set/data.yaml:5:3: 'one' is not a class index: number "
            "the classes 0, 1, 2, ...");
  EXPECT_EQ(refusal(kSplits + "names:\n  0: a\n  00: c\n"),
            "[config] set/data.yaml:5:3: class 0 is named twice, first in line "
            "4: keep one of the two");
  EXPECT_EQ(refusal(kSplits + "names: []\n"),
            "[config] set/data.yaml:3:8: names is empty: name at least one "
            "class");
  EXPECT_EQ(refusal(kSplits + "names: car\n"),
            "[config] set/data.yaml:3:8: names is 'car': write a list [car, "
            "bus] or a mapping {0: car, 1: bus}");
  EXPECT_EQ(refusal(kSplits + "names: [a, [b]]\n"),
            "[config] set/data.yaml:3:12: a name is a list: write one word or "
            "a \"quoted text\" here");
  EXPECT_EQ(refusal(kSplits + "names: [a, b]\nnc: 3\n"),
            "[config] set/data.yaml:4:5: nc is 3, but names has 2 classes: "
            "make them agree, or remove nc");
}

TEST_F(DataConfigTest, MissingKeysAndWrongTypes) {
  EXPECT_EQ(refusal(kSplits),
            "[config] set/data.yaml:1:1: the key 'names' is missing: add a "
            "line 'names: ...'");
  EXPECT_EQ(refusal("train: images/train\nnames: [a]\n"),
            "[config] set/data.yaml:1:1: the key 'val' is missing: add a line "
            "'val: ...'");
  EXPECT_EQ(refusal(""),
            "[data] set/data.yaml is an empty file, not YAML in UTF-8: name "
            "the right file");
  EXPECT_EQ(refusal(kSplits + "names: [car, bus, car]\n"),
            "[data] set/data.yaml: classes 0 and 2 are both named 'car': give "
            "each class a name of its own, or label both as one");
  EXPECT_EQ(refusal("train: images/train\nvall: x\nnames: [a]\n"),
            "[config] set/data.yaml:2:1: unknown key 'vall' in a data file: "
            "did you mean 'val'?");
  EXPECT_EQ(refusal("train: {a: b}\nval: images/val\nnames: [a]\n"),
            "[config] set/data.yaml:1:8: train is a mapping: write one word or "
            "a \"quoted text\" here");
  EXPECT_EQ(refusal("train: []\nval: images/val\nnames: [a]\n"),
            "[config] set/data.yaml:1:8: train is an empty list: name a folder "
            "or a list");
  EXPECT_EQ(refusal(kSplits + "names: [a]\nchannels: 1\n"),
            "[config] set/data.yaml:4:11: channels is 1: this version reads "
            "colour images, 3 channels, only");
  EXPECT_EQ(refusal("train:\tx\n"),
            "[config] set/data.yaml:1:7: a tab: YAML is indented with spaces; "
            "replace the tab");
}

TEST_F(DataConfigTest, MissingImagesNameEveryPathTried) {
  const std::string cwd = fs::current_path().string();
  EXPECT_EQ(refusal("path: .\ntrain: images/trian\nval: images/val\n"
                    "names: [a]\n"),
            "[data] set/data.yaml:2:8: train: images/trian: there is no "
            "set/images/trian: put the images there or correct the path");
  EXPECT_EQ(refusal("path: .\ntrain: images/train\nval: [more.txt, ../v]\n"
                    "names: [a]\n"),
            "[data] set/data.yaml:3:17: val: ../v: there is no v nor set/v: "
            "put the images there or correct the path");
  EXPECT_EQ(refusal("train: x\nval: images/val\nnames: [a]\n"),
            "[data] set/data.yaml:1:8: train: x: there is no set/x nor " + cwd +
                "/x: put the images there or correct the path");
  EXPECT_EQ(refusal("path: ../coco128\n" + kSplits +
                    "names: [a]\ndownload: https://example.org/a.zip\n"),
            "[data] set/data.yaml:1:7: path: ../coco128: there is no folder "
            "coco128 nor " +
                (fs::path(cwd) / "../coco128").lexically_normal().string() +
                ": put the data set there or correct the path ('download' is "
                "never run)");
}

TEST_F(DataConfigTest, OnlyFoldersAndLists) {
  folder_.write("set/train.tsv", "{}");
  EXPECT_EQ(
      refusal("path: .\ntrain: train.tsv\nval: images/val\n"
              "names: [a]\n"),
      "[data] set/data.yaml:2:8: train: set/train.tsv is neither a "
      "folder nor a .txt list of images nor a COCO .json nor a .geojson nor a "
      ".csv nor an .index of packs: name a folder, a .txt list, a .json, a "
      ".geojson, a .csv or an .index");
}

TEST_F(DataConfigTest, ClassNamesAreUtf8) {
  const std::string head = "path: .\n" + kSplits;
  EXPECT_EQ(load(head + "names: [caf\xc3\xa9, \xe7\x8c\xab]\n").names.size(),
            2u);
  // The names are in Latin-1, or have a truncated sequence, an overlong
  // sequence, or a surrogate.
  for (const char* name : {"caf\xe9", "\xe7\x8c", "\xc0\xaf", "\xed\xa0\x80"}) {
    EXPECT_EQ(refusal(head + "names: [a, '" + name + "']\n"),
              "[data] set/data.yaml: the name of class 1 is not UTF-8: save "
              "the file as UTF-8 (for XML, declare its encoding)");
  }
}

TEST_F(DataConfigTest, ClassNamesCommandNoTerminal) {
  EXPECT_EQ(refusal("path: .\n" + kSplits + "names: [a, \"b\\e[2J\"]\n"),
            "[data] set/data.yaml: the name of class 1 holds control "
            "characters: 'b\\x1b[2J': remove them: names are shown in tables "
            "and pictures");
}

TEST_F(DataConfigTest, MissingTestImagesWaitUntilTheyAreAskedFor) {
  const DataConfig config =
      load("path: .\n" + kSplits + "test: test-dev.txt\nnames: [a]\n");
  EXPECT_TRUE(config.test.empty());
  EXPECT_EQ(config.test_split_error,
            "[data] " + at("set/data.yaml").string() +
                ":4:7: test: test-dev.txt: there is no " +
                at("set/test-dev.txt").string() +
                ": put the images there or correct the path");
}

TEST_F(DataConfigTest, MissingFile) {
  const std::string path = at("none.yaml").string();
  EXPECT_EQ(testing::refusal_of([&] { load_data_config(path); }),
            "[data] there is no file " + path +
                ": check the path; data sets such as YOLOv5's coco128 are not "
                "downloaded: describe your copy in a file as "
                "configs/data/own_images.yaml");
}

TEST_F(DataConfigTest, TheTemplateOfTheTreeLoads) {
  std::ifstream file(HEADROOM_SOURCE_DIR "/configs/data/own_images.yaml");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(load(text.str()).names, (std::vector<std::string>{"car", "bus"}));
}

TEST(DataConfigShared, BloodCells) {
  const fs::path path =
      HEADROOM_SOURCE_DIR "/../shared/datasets/bccd/data.yaml";
  if (!fs::exists(path)) GTEST_SKIP() << "no " << path;
  const DataConfig config = load_data_config(path);
  EXPECT_EQ(config.names,
            (std::vector<std::string>{"RBC", "WBC", "Platelets"}));
  EXPECT_TRUE(fs::is_directory(config.train.at(0)));
  EXPECT_TRUE(fs::is_directory(config.val.at(0)));
  EXPECT_EQ(config.test.size(), 1u);
}

}  // namespace
}  // namespace headroom::configs
