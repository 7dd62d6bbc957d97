#include "worker/data/labels/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/refusal.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;

// A faulty line loses its box, as in training. Images are not opened.
TEST(BoxCounts, CountsTheBoxesThatTrainingKeeps) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", "no picture");
  folder.write("labels/1.txt",
               "0 .5 .5 .2 .2\n0 nan .5 .2 .2\n1 .5 .5 0 .2\n0 .5 .5 .2 .2\n"
               "2 .1 .1 .1 .1\n");
  folder.write("images/2.bmp", "no picture");
  folder.write("images/3.bmp", "no picture");
  folder.write("labels/3.txt", "1 .5 .5 .2 .2\n");
  folder.write("images/4.bmp", "no picture");
  fs::create_directories(folder.path() / "labels/4.txt");
  const configs::DataConfig config =
      data_config(folder, folder.path() / "images");
  for (const int64_t threads : {1, 8}) {
    IndexOptions options;
    options.num_threads = threads;
    EXPECT_EQ(count_boxes(config, Split::kTrain, options).boxes,
              (std::vector<int64_t>{2, 0, 1}));
  }
}

// A plan gets the same counts with and without an index of the data set: images
// that cannot be decoded count in both.
TEST(BoxCounts, AnIndexHasTheSame) {
  const TemporaryFolder folder;
  for (const char* name : {"1", "3", "5"}) {
    folder.write("images/" + std::string(name) + ".bmp",
                 encode_bmp(test_picture(12, 16, 1)));
  }
  folder.write("images/2.bmp", "no picture");
  folder.write("images/4.bmp", "no picture");
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n1 .2 .2 .6 .2 .6 .6\n");
  folder.write("labels/2.txt",
               "0 .2 .2 .6 .2 .6 .6\n1 .5 .5 .2 .2\n7 .5 .5 .1 .1\n");
  folder.write("labels/3.txt", "");
  fs::create_directories(folder.path() / "labels/4.txt");
  fs::create_directories(folder.path() / "labels/5.txt");
  const configs::DataConfig config =
      data_config(folder, folder.path() / "images");
  BoxCounts alone = count_boxes(config, Split::kTrain, {});
  BoxCounts indexed = count_boxes(index_dataset(config, Split::kTrain));
  std::sort(alone.boxes.begin(), alone.boxes.end());
  std::sort(indexed.boxes.begin(), indexed.boxes.end());
  EXPECT_EQ(indexed.boxes, alone.boxes);
  EXPECT_EQ(alone.boxes, (std::vector<int64_t>{0, 2, 2}));
  EXPECT_EQ(indexed.polygons, alone.polygons);
  EXPECT_EQ(alone.polygons, 2) << "one of them in an image left out";
}

TEST(BoxCounts, NoImageIsRefused) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "images");
  const configs::DataConfig config =
      data_config(folder, folder.path() / "images");
  const std::string text =
      refusal_of([&] { count_boxes(config, Split::kTrain, {}); });
  EXPECT_NE(text.find("no image to train on"), std::string::npos) << text;
}

}  // namespace
}  // namespace headroom::labels
