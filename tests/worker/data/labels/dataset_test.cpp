#include "worker/data/labels/dataset.h"

#include <gtest/gtest.h>

#include <functional>

#include "parallel/base/text.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/refusal.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

std::string refusal_of(const configs::DataConfig& config,
                       Split split = Split::kTrain) {
  return headroom::refusal_of([&] { index_dataset(config, split); });
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string picture() { return encode_bmp(test_picture(12, 16, 1)); }

TEST(Dataset, IndexesImagesAndLabels) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", picture());
  folder.write("images/2.bmp", encode_bmp(test_picture(30, 20, 1)));
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n2 .5 .5 .4 .4\n");
  const IndexedDataset indexed = index_dataset(
      data_config(folder, folder.path() / "images"), Split::kTrain);
  const Dataset& dataset = indexed.dataset;
  ASSERT_EQ(dataset.size(), 2);
  EXPECT_EQ(dataset.path(1), folder.path() / "images/2.bmp");
  EXPECT_EQ(dataset.image_size(0), (codecs::ImageSize{12, 16}));
  EXPECT_EQ(dataset.image_size(1), (codecs::ImageSize{30, 20}));
  ASSERT_EQ(dataset.labels(0).size(), 2u);
  EXPECT_EQ(dataset.labels(0)[1], (BoxLabel{2, .5f, .5f, .4f, .4f}));
  EXPECT_TRUE(dataset.labels(1).empty());
  EXPECT_EQ(dataset.num_labels(), 2);
  EXPECT_EQ(
      indexed.report.lines(5),
      (std::vector<std::string>{"train: 2 images (1 without boxes), 2 boxes"}));
}

TEST(Dataset, KeepsAPart) {
  const TemporaryFolder folder;
  for (const char* name : {"1", "2", "3"}) {
    folder.write(cat("images/", name, ".bmp"), picture());
  }
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  folder.write("labels/2.txt", "1 .5 .5 .2 .2\n");
  folder.write("labels/3.txt", "2 .5 .5 .4 .4\n1 .1 .1 .9 .1 .9 .9\n");
  const auto index = [&] {
    IndexOptions options;
    options.keep_outlines = true;
    return index_dataset(data_config(folder, folder.path() / "images"),
                         Split::kTrain, options)
        .dataset;
  };
  const Dataset whole = index();
  Dataset part = index();
  part.keep({0, 2});
  ASSERT_EQ(part.size(), 2);
  EXPECT_EQ(part.path(1), whole.path(2));
  EXPECT_EQ(part.image_size(1), whole.image_size(2));
  EXPECT_EQ(part.labels(0)[0].class_index, 0);
  ASSERT_EQ(part.labels(1).size(), 2u);
  EXPECT_EQ(part.labels(1)[0], whole.labels(2)[0]);
  EXPECT_EQ(part.labels(1)[1], whole.labels(2)[1]);
  EXPECT_EQ(part.num_labels(), 3);
  EXPECT_EQ(part.num_polygons(), 1);
  EXPECT_EQ(part.class_names(), whole.class_names());
  Dataset other = index();
  other.keep({0, 1});
  EXPECT_EQ(other.num_polygons(), 0);
  EXPECT_NE(part.digest(), whole.digest());
  EXPECT_NE(part.digest(), other.digest());
}

TEST(Dataset, FaultsCostABoxOrAnImageAndAreNamed) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", picture());
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n0 nan .5 .2 .2\n1 .5 .5 0 .2");
  folder.write("images/2.jpg", "<html>not found</html>");
  folder.write("labels/2.txt", "0 .5 .5 .2 .2\n");
  folder.write("images/3.bmp", picture());
  fs::create_directories(folder.path() / "labels/3.txt");
  const IndexedDataset indexed = index_dataset(
      data_config(folder, folder.path() / "images"), Split::kTrain);
  EXPECT_EQ(indexed.dataset.size(), 1);
  EXPECT_EQ(indexed.dataset.num_labels(), 1);
  const std::string root = folder.path().string();
  const auto lines = indexed.report.lines(3);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0],
            "train: 1 image (0 without boxes), 1 box; 4 faults: "
            "1 not a finite number, 1 zero size, 1 unreadable label file, "
            "1 unreadable image; "
            "4 objects = 1 box + 2 dropped + 1 of images left out");
  EXPECT_EQ(lines[1], root +
                          "/labels/1.txt:2: not a finite number (\"0 nan .5 "
                          ".2 .2\"): box dropped");
  EXPECT_EQ(lines[2],
            root + "/labels/1.txt:3: zero size (w 0, h 0.2): box dropped");
  EXPECT_EQ(lines[3],
            root +
                "/images/2.jpg: unreadable image (text (HTML or XML), not "
                "a JPEG, PNG, BMP, TIFF or WebP file): image and its boxes "
                "left out");
  EXPECT_EQ(lines[4], "and 1 more");
}

TEST(Dataset, AClassBeyondNamesIsRefusedByLine) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", picture());
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n3 .5 .5 .2 .2\n");
  const configs::DataConfig config =
      data_config(folder, folder.path() / "images");
  const std::string text = refusal_of(config);
  EXPECT_TRUE(contains(text, "labels/1.txt:2 has class 3")) << text;
  EXPECT_TRUE(contains(text, "has 3 classes, 0 to 2")) << text;

  IndexOptions options;
  options.single_cls = true;
  const Dataset single = index_dataset(config, Split::kTrain, options).dataset;
  EXPECT_EQ(single.class_names(), std::vector<std::string>{"item"});
  EXPECT_EQ(single.labels(0).size(), 1u);  // two equal rows of class 0
}

TEST(Dataset, FilesThatAreNoLabelsCostTheirImageAndAreNamedByTheirKind) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", picture());
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  folder.write("images/2.bmp", picture());
  folder.write("labels/2.txt", "<html>");
  folder.write("images/3.bmp", picture());
  folder.write("labels/3.txt", std::string("\xFF\xFE"
                                           "0\0 \0",
                                           6));
  const IndexedDataset indexed = index_dataset(
      data_config(folder, folder.path() / "images"), Split::kTrain);
  EXPECT_EQ(indexed.dataset.size(), 1);
  ASSERT_EQ(indexed.report.faults.size(), 2u);
  EXPECT_EQ(indexed.report.faults[0].what,
            "text (HTML or XML), not lines `class cx cy w h`");
  EXPECT_EQ(indexed.report.faults[1].what,
            "UTF-16 text, not lines `class cx cy w h`");
}

TEST(Dataset, ClassesThatCountFromOneAreReported) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", picture());
  folder.write("labels/1.txt", "1 .5 .5 .2 .2\n");
  folder.write("images/2.bmp", picture());
  folder.write("labels/2.txt", "2 .5 .5 .2 .2\n3 .5 .5 .2 .2\n");
  const configs::DataConfig config =
      data_config(folder, folder.path() / "images");
  const std::string text = refusal_of(config);
  EXPECT_TRUE(contains(text, "labels/2.txt:2 has class 3")) << text;
  EXPECT_TRUE(contains(text,
                       "(label files with such a class: 1; with class "
                       "0: none, so these labels count classes from 1): "
                       "take 1 from the class of every line"))
      << text;
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  EXPECT_TRUE(contains(refusal_of(config), "with such a class: 1): complete"))
      << refusal_of(config);
}

TEST(Dataset, LabelsInPixelsAreCounted) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", picture());
  folder.write("labels/1.txt", "0 8 6 4 4\n1 4 4 8 8\n");
  const std::string text =
      refusal_of(data_config(folder, folder.path() / "images"));
  EXPECT_TRUE(contains(text, "has a box that can be used: 2 in pixels, first"))
      << text;
  EXPECT_TRUE(contains(text, "write cx cy w h as fractions")) << text;
}

TEST(Dataset, NothingLeftIsRefused) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "images");
  const configs::DataConfig config =
      data_config(folder, folder.path() / "images");
  EXPECT_TRUE(contains(refusal_of(config), "has no image"));
  folder.write("images/1.jpg", "");
  EXPECT_TRUE(contains(refusal_of(config), "none of 1 image"));
  EXPECT_TRUE(contains(refusal_of(config), "empty file"));
  folder.write("images/1.jpg", picture());
  EXPECT_TRUE(contains(refusal_of(config), "labels/1.txt"));
  EXPECT_TRUE(contains(refusal_of(config, Split::kTest), "names no images"));
}

TEST(Dataset, TheDigestIsOfTheContentNotOfThePlace) {
  const auto digest =
      [](const std::function<void(const TemporaryFolder&)>& change) {
        const TemporaryFolder folder;
        const configs::DataConfig config = write_data_set(folder, 3);
        change(folder);
        IndexOptions options;
        options.num_threads = 3;
        return index_dataset(config, Split::kTrain, options).dataset.digest();
      };
  const uint64_t plain = digest([](const TemporaryFolder&) {});
  EXPECT_EQ(plain, digest([](const TemporaryFolder&) {}));
  EXPECT_NE(plain, digest([](const TemporaryFolder& folder) {
              folder.write("labels/train/100.txt", "1 .5 .5 .25 .25\n");
            }));
  EXPECT_NE(plain, digest([](const TemporaryFolder& folder) {
              folder.write("images/train/101.bmp", picture());
            }));
  EXPECT_NE(plain, digest([](const TemporaryFolder& folder) {
              fs::rename(folder.path() / "images/train/102.bmp",
                         folder.path() / "images/train/103.bmp");
            }));
}

TEST(Dataset, OutlinesAreKeptOnRequest) {
  const TemporaryFolder folder;
  const configs::DataConfig config = write_data_set(folder, 3);
  folder.write("labels/train/100.txt", "0 .5 .5 .2 .2\n");
  folder.write("labels/train/101.txt",
               "0 .5 .5 .2 .2\n1 .25 .5 .5 .5 .5 .75\n2 0 0 1 0 1 1 0 1\n");
  folder.write("labels/train/102.txt", "1 0 0 .5 0 .5 .5\n");
  const Dataset plain = index_dataset(config, Split::kTrain).dataset;
  EXPECT_EQ(plain.num_polygons(), 3);
  EXPECT_TRUE(plain.outlines(1).of(1).empty());
  IndexOptions options;
  options.keep_outlines = true;
  const Dataset kept = index_dataset(config, Split::kTrain, options).dataset;
  EXPECT_TRUE(kept.outlines(0).of(0).empty());
  EXPECT_TRUE(kept.outlines(1).of(0).empty());
  const auto triangle = kept.outlines(1).of(1);
  EXPECT_EQ(std::vector(triangle.begin(), triangle.end()),
            (std::vector<IndexedPoint>{{.25f, .5f}, {.5f, .5f}, {.5f, .75f}}));
  EXPECT_EQ(kept.outlines(1).of(2).size(), 4u);
  EXPECT_EQ(kept.outlines(2).of(0)[1], (IndexedPoint{.5f, 0}));
  EXPECT_TRUE(kept.outlines(2).of(1).empty()) << "there is no such box";
  // Only the outline changes, not the boxes. The digest changes only if
  // outlines are kept.
  folder.write("labels/train/102.txt", "1 0 0 .5 0 .5 .5 .25 .25\n");
  EXPECT_EQ(plain.digest(),
            index_dataset(config, Split::kTrain).dataset.digest());
  EXPECT_NE(kept.digest(),
            index_dataset(config, Split::kTrain, options).dataset.digest());
}

TEST(Dataset, ThreadsDoNotChangeTheIndex) {
  const TemporaryFolder folder;
  const configs::DataConfig config = write_data_set(folder, 20);
  folder.write("labels/train/105.txt", "0 .5 .5 9 9 9\nx\n");
  folder.write("images/train/110.bmp", "BM");
  IndexOptions one;
  one.num_threads = 1;
  IndexOptions many;
  many.num_threads = 7;
  const IndexedDataset a = index_dataset(config, Split::kTrain, one);
  const IndexedDataset b = index_dataset(config, Split::kTrain, many);
  EXPECT_EQ(a.dataset.digest(), b.dataset.digest());
  EXPECT_EQ(a.report.lines(100), b.report.lines(100));
  EXPECT_GT(a.report.num_faults(), 0);
}

TEST(Dataset, BloodCellsHaveTwoZeroAreaBoxes) {
  const fs::path root = shared_data_set("bccd");
  if (!fs::exists(root)) GTEST_SKIP() << kSharedDataMissing;
  configs::DataConfig config;
  config.file = root / "data.yaml";
  config.names = {"RBC", "WBC", "Platelets"};
  config.train = {root / "images/train"};
  config.val = {root / "images/val"};
  config.test = {root / "images/test"};
  const struct {
    Split split;
    int64_t images, boxes;
  } kExpected[] = {{Split::kTrain, 205, 2805},
                   {Split::kVal, 87, 1138},
                   {Split::kTest, 72, 945}};
  std::vector<std::string> faults;
  for (const auto& expected : kExpected) {
    const IndexedDataset indexed = index_dataset(config, expected.split);
    EXPECT_EQ(indexed.dataset.size(), expected.images);
    EXPECT_EQ(indexed.dataset.num_labels() + indexed.report.num_faults(),
              expected.boxes);
    for (const DataFault& fault : indexed.report.faults) {
      EXPECT_EQ(fault.kind, DataFaultKind::kZeroSize);
      faults.push_back(fs::path(fault.where).filename().string());
    }
    EXPECT_EQ(indexed.dataset.image_size(0), (codecs::ImageSize{480, 640}));
  }
  std::sort(faults.begin(), faults.end());
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_TRUE(contains(faults[0], "BloodImage_00338.txt:")) << faults[0];
  EXPECT_TRUE(contains(faults[1], "BloodImage_00343.txt:")) << faults[1];
}

TEST(Dataset, LabelsBesideTheImages) {
  const fs::path root = shared_data_set("aerial_cars/large_4000x2250");
  if (!fs::exists(root)) GTEST_SKIP() << kSharedDataMissing;
  configs::DataConfig config;
  config.file = root / "data.yaml";
  config.names = {"car", "truck", "bus", "minibus", "cyclist"};
  config.train = {root};
  const IndexedDataset indexed = index_dataset(config, Split::kTrain);
  EXPECT_EQ(indexed.dataset.size(), 8);
  EXPECT_EQ(indexed.dataset.num_labels(), 149);
  EXPECT_EQ(indexed.report.num_faults(), 0);
}

TEST(DataReport, ANameCannotBreakALineOrControlATerminal) {
  EXPECT_EQ(to_string(DataFault{.kind = DataFaultKind::kBadLine,
                                .where = "a\nb\x1b[2J.txt line 1",
                                .what = "c\x07",
                                .fix = "dropped"}),
            "a b\\x1b[2J.txt line 1: bad line (c\\x07): dropped");
}

}  // namespace
}  // namespace headroom::labels
