// Data sets that have the faults of tests/worker/data/labels/reports_test.cpp
// in other forms. Each data set is made here. Each has the same four images,
// with one box in each image.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/labels/verification.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

using Files = std::vector<std::pair<std::string, std::string>>;

// Four images of 40 x 20 with a box of class b at 4,5 to 20,15 each.
constexpr int kImages = 4;
const BoxLabel kBox{1, .3F, .5F, .4F, .5F};

struct Odd {
  std::string name;
  Files files;          // %d in a name: one file for each image
  std::string said;     // part of the report or of the refusal
  bool is_read = true;  // true: read with exactly the boxes above
  std::string yaml = "train: images\nval: images\nnames: [a, b]\n";
};

std::string coco(const std::string& image, const std::string& annotation,
                 const std::string& category = R"("id": 1, "name": "b")") {
  std::string images, annotations;
  for (int i = 0; i < kImages; ++i) {
    const std::string n = std::to_string(i);
    images += (i > 0 ? "," : "") + std::string("{\"id\": ") + n +
              ", \"file_name\": \"" + n + ".bmp\"" + image + "}";
    annotations += (i > 0 ? "," : "") + std::string("{\"id\": ") + n +
                   ", \"image_id\": " + n + ", \"category_id\": 1, " +
                   annotation + "}";
  }
  return "{\"images\": [" + images + "], \"categories\": [{" + category +
         "}], \"annotations\": [" + annotations + "]}";
}

const std::string kCocoYaml =
    "train: t.json\nval: t.json\nimages: images\nnames: [a, b]\n";
const std::string kCsvYaml =
    "train: t.csv\nval: t.csv\nimages: images\nnames: [a, b]\n";

std::string voc(const std::string& object, const std::string& before = "") {
  return "<annotation>" + before + "<object>" + object +
         "</object></annotation>";
}
const std::string kVocBox =
    "<bndbox><xmin>4</xmin><ymin>5</ymin><xmax>20</xmax><ymax>15</ymax>"
    "</bndbox>";

std::string csv(const std::string& row,
                const std::string& head = "filename,class,xmin,ymin,xmax,ymax",
                const std::string& end = "\n") {
  std::string text = head + end;
  for (int i = 0; i < kImages; ++i) text += std::to_string(i) + row + end;
  return text;
}

std::string list(const std::string& before, const std::string& after) {
  std::string text;
  for (int i = 0; i < kImages; ++i) text += before + std::to_string(i) + after;
  return text;
}

std::vector<Odd> odd_sets() {
  const Files rows = {{"labels/%d.txt", "1 .3 .5 .4 .5\n"}};
  const std::string list_yaml = "train: t.txt\nval: images\nnames: [a, b]\n";
  const auto with = [&](const std::string& name, const std::string& text) {
    Files files = rows;
    files.emplace_back(name, text);
    return files;
  };
  return {
      // The label file states another size than the image's.
      {"voc at twice the size",
       {{"images/%d.xml",
         voc("<name>b</name><bndbox><xmin>8</xmin><ymin>10</ymin><xmax>40"
             "</xmax><ymax>30</ymax></bndbox>",
             "<size><width>80</width><height>40</height></size>")}},
       "labelled at 80 x 40, the image has 40 x 20"},
      {"csv at half the size",
       {{"t.csv", csv(".bmp,20,10,b,2,2.5,10,7.5",
                      "filename,width,height,class,xmin,ymin,xmax,ymax")}},
       "labelled at 20 x 10",
       true,
       kCsvYaml},
      {"coco of another ratio",
       {{"t.json",
         coco(R"(, "width": 50, "height": 50)", R"("bbox": [4, 5, 16, 10])")}},
       "boxes taken as pixels",
       true,
       kCocoYaml},
      {"coco with a stale size",
       {{"t.json",
         coco(R"(, "width": 9, "height": 9)", R"("bbox": [4, 5, 16, 10])")}},
       "4 labelled at another size",
       true,
       kCocoYaml},
      // Boxes in other units.
      {"coco in fractions",
       {{"t.json", coco("", R"("bbox": [0.1, 0.25, 0.4, 0.5])")}},
       "fractions",
       true,
       kCocoYaml},
      {"voc in fractions",
       {{"images/%d.xml",
         voc("<name>b</name><bndbox><xmin>.1</xmin><ymin>.25</ymin><xmax>.5"
             "</xmax><ymax>.75</ymax></bndbox>")}},
       "fractions"},
      {"csv in fractions, corners exchanged",
       {{"t.csv", csv(".bmp,b,.5,.75,.1,.25")}},
       "corners exchanged",
       true,
       kCsvYaml},
      {"corners in yolo rows",
       {{"labels/%d.txt", "1 .1 .25 .5 .75\n"}},
       "corners, not centres"},
      {"pixels in yolo rows",
       {{"labels/%d.txt", "1 12 10 16 10\n"}},
       "4 in pixels",
       false},
      {"the class stands last",
       {{"labels/%d.txt", ".3 .5 .4 .5 1\n"}},
       "the class stands last",
       false},
      {"the name of the class stands last",
       {{"labels/%d.txt", ".3 .5 .4 .5 big cat\n"}},
       "the class stands last",
       false},
      // Rows with the keypoints of a pose.
      {"a pose of 17 points",
       {{"labels/%d.txt",
         "1 .3 .5 .4 .5 "
         ".3 .5 2 .2 .4 1 .3 .3 2 .4 .6 0 .3 .7 2\n"}},
       "keypoints"},
      {"a pose by kpt_shape",
       {{"labels/%d.txt", "1 .3 .5 .4 .5 .9 .9\n"}},
       "",
       true,
       "train: images\nval: images\nkpt_shape: [1, 2]\nnames: [a, b]\n"},
      {"an outline stays an outline",
       {{"labels/%d.txt", "1 .1 .25 .5 .25 .5 .75 .1 .75\n"}},
       "4 boxes\n"},
      // Unusual line ends and blanks.
      {"labels with CR",
       {{"labels/%d.txt", "# b\r1 .3 .5 .4 .5\r"}},
       "4 boxes\n"},
      {"labels with CRCRLF and Ctrl-Z",
       {{"labels/%d.txt", "1 .3 .5 .4 .5\r\r\n\x1A"}},
       "4 boxes\n"},
      {"csv with CR, a mark and blanks",
       {{"t.csv",
         "\xEF\xBB\xBF" + csv(".bmp , b ,4,5, 20 ,15",
                              "filename, class ,xmin,ymin,xmax,ymax", "\r")}},
       "4 boxes\n",
       true,
       kCsvYaml},
      {"yaml with CR", rows, "4 boxes\n", true,
       "train: images\rval: images\rnames: [a, b]\r"},
      {"yaml with unbroken blanks", rows, "4 boxes\n", true,
       "train:\xC2\xA0images\nval: images\nnames: [a, b]\n"},
      {"list with a mark, quotes and blanks",
       with("t.txt",
            "\xEF\xBB\xBF# all\r\n" + list("  'images/", ".bmp' \r\n")),
       "4 boxes\n", true, list_yaml},
      {"voc names in lines",
       {{"images/%d.xml", voc("<name>\n b\n</name>" + kVocBox)}},
       "4 boxes\n"},
      // The report counts the objects that are not used.
      {"coco ignore",
       {{"t.json", coco("", R"("bbox": [4, 5, 16, 10]},
{"id": 9, "image_id": 0, "category_id": 1, "iscrowd": 1,
 "bbox": [1, 1, 9, 9])")}},
       "8 objects = 4 boxes + 4 crowds",
       true,
       kCocoYaml},
      {"coco of unknown images",
       {{"t.json", coco("", R"("bbox": [4, 5, 16, 10]},
{"image_id": 77, "category_id": 1, "bbox": [1, 1, 9, 9])")}},
       "8 objects = 4 boxes + 4 dropped",
       true,
       kCocoYaml},
      {"a duplicate",
       {{"labels/%d.txt", "1 .3 .5 .4 .5\n1 .3 .5 .4 .5\n"}},
       "8 objects = 4 boxes + 4 dropped"},
      // Exchanged corners and missing boxes.
      {"voc without bndbox",
       {{"images/%d.xml",
         voc("<name>b</name><polygon><x1>4</x1><y1>5</y1><x2>20</x2><y2>5</y2>"
             "<x3>20</x3><y3>15</y3></polygon>")}},
       "4 without a box"},
      {"coco with an empty bbox",
       {{"t.json", coco("", R"("bbox": [],
"segmentation": [[4, 5, 20, 5, 20, 15]])")}},
       "4 without a box",
       true,
       kCocoYaml},
      {"coco with a bbox of null",
       {{"t.json", coco("", R"("bbox": null,
"segmentation": [[4, 5, 20, 5], [20, 15, 4, 15, 4, 5]])")}},
       "without a box",
       true,
       kCocoYaml},
      {"csv with semicolons, a mark and Windows' line ends",
       {{"t.csv",
         "\xEF\xBB\xBF" + csv(".bmp;b;4;5;20;15",
                              "filename;class;xmin;ymin;xmax;ymax", "\r\n")}},
       "4 boxes\n",
       true,
       kCsvYaml},
      {"csv with tabs",
       {{"t.csv", csv(".bmp\tb\t4\t5\t20\t15",
                      "filename\tclass\txmin\tymin\txmax\tymax")}},
       "4 boxes\n",
       true,
       kCsvYaml},
      {"a COCO mask without a box",
       {{"t.json", coco("", R"("segmentation": {"size": [20, 40],
"counts": [85, 10, 705]})")}},
       "no bbox, and no outline as lists of points",
       false,
       kCocoYaml},
      {"csv exchanged",
       {{"t.csv", csv(".bmp,b,20,15,4,5")}},
       "4 negative sizes",
       true,
       kCsvYaml},
      {"yolo with a negative width",
       {{"labels/%d.txt", "1 .3 .5 -.4 .5\n"}},
       "4 negative sizes"},
      // Label files that belong to no image.
      {"labels in capitals beside images",
       {{"images/%d.TXT", "1 .3 .5 .4 .5"}},
       "no image reads",
       false},
      {"a label for no image", with("labels/77.txt", "1 .3 .5 .4 .5"),
       "labels/77.txt"},
      {"classes.txt is no label", with("labels/classes.txt", "a\nb\n"),
       "4 boxes\n"},
      {"labelImg's classes in another order",
       with("labels/classes.txt", "b\r\na\r\n\r\n"), "says class 0 is 'b', "},
      {"darknet's classes in another order above the labels",
       with("obj.names", "b\na\n"), "obj.names: list of other classes"},
      {"Roboflow's classes are more than names",
       with("labels/_darknet.labels", "a\nb\nc\n"), "has 3 classes, "},
      {"a list of classes in UTF-16",
       with("classes.txt", std::string("\xFF\xFE"
                                       "a\0",
                                       4)),
       "UTF-16"},
      {"a list of classes does not matter for names in rows",
       {{"labels/%d.txt", "b .3 .5 .4 .5\n"}, {"classes.txt", "b\na\n"}},
       "4 boxes\n"},
      // Copies of images that programs hide.
      {"__MACOSX", with("images/__MACOSX/._0.bmp", "x"), "1 hidden copy"},
      {"Thumbs.db", with("images/Thumbs.db", "x"), "4 boxes\n"},
      // Formats of other programs.
      {"semicolons", {{"labels/%d.txt", "1;.3;.5;.4;.5\n"}}, "commas"},
      {"names with blanks",
       {{"labels/%d.txt", "big cat .3 .5 .4 .5\n"}},
       "names of classes",
       true,
       "train: images\nval: images\nnames: [a, big cat]\n"},
      {"KITTI with regions to ignore",
       {{"labels/%d.txt",
         "b 0.00 0 -1.5 4 5 20 15 1 1 3 0 1 46 -1\n"
         "DontCare -1 -1 -10 1 1 9 9 -1 -1 -1 -1000 -1000 -1000 -10\n"}},
       "8 objects = 4 boxes + 4 crowds"},
      {"VisDrone",
       {{"labels/%d.txt", "4,5,16,10,1,4,0,0\n"}},
       "VisDrone",
       false},
      {"Open Images",
       {{"t.csv", "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\n"}},
       "Open Images",
       false,
       kCsvYaml},
      {"BDD100K as a json",
       {{"t.json", R"([{"name": "0.bmp", "labels": [{"category": "b",
"box2d": {"x1": 4, "y1": 5, "x2": 20, "y2": 15}}]}])"}},
       "BDD100K",
       false,
       kCocoYaml},
      // Paths as Windows writes them.
      {"a list with backslashes below the list",
       with("t.txt", list(".\\images\\", ".bmp\r\n")), "4 boxes\n", true,
       list_yaml},
      {"a path with a backslash", rows, "4 boxes\n", true,
       "path: .\\\ntrain: .\\images\nval: images\nnames: [a, b]\n"},
      {"a drive in a list with slashes",
       with("t.txt", list("D:/images/", ".bmp\n")), "drive", false, list_yaml},
      // Files with a single bad value.
      {"coco with Infinity",
       {{"t.json", coco("", R"("bbox": [4, 5, 16, 10]},
{"image_id": 0, "category_id": 1, "bbox": [1, 1, -Infinity, 9])")}},
       "4 not finite numbers",
       true,
       kCocoYaml},
      {"unknown keys of a yaml", rows, "'train_seen' is not used", true,
       "train: images\nval: images\nnames: [a, b]\ntrain_seen: 7\n"},
  };
}

void expect_boxes(const Dataset& dataset) {
  ASSERT_EQ(dataset.size(), kImages);
  for (int64_t i = 0; i < dataset.size(); ++i) {
    ASSERT_EQ(dataset.labels(i).size(), 1U);
    const BoxLabel box = dataset.labels(i)[0];
    EXPECT_EQ(box.class_index, kBox.class_index);
    EXPECT_NEAR(box.cx, kBox.cx, 1e-5);
    EXPECT_NEAR(box.cy, kBox.cy, 1e-5);
    EXPECT_NEAR(box.w, kBox.w, 1e-5);
    EXPECT_NEAR(box.h, kBox.h, 1e-5);
  }
}

TEST(OddLabels, AreReadRightlyOrRefusedByName) {
  const std::vector<Odd> sets = odd_sets();
  EXPECT_GE(sets.size(), 40U);
  for (const Odd& odd : sets) {
    SCOPED_TRACE(odd.name);
    const TemporaryFolder folder;
    for (int i = 0; i < kImages; ++i) {
      const std::string n = std::to_string(i);
      folder.write("images/" + n + ".bmp", encode_bmp(test_picture(20, 40, 1)));
      for (const auto& [name, text] : odd.files) {
        std::string own = name;
        const size_t at = own.find("%d");
        if (at != std::string::npos) own.replace(at, 2, n);
        folder.write(own, text);
      }
    }
    std::string said;
    bool is_read = false;
    try {
      const configs::DataConfig config =
          configs::load_data_config(folder.write("data.yaml", odd.yaml));
      const IndexedDataset indexed = index_dataset(config, Split::kTrain);
      is_read = true;
      for (const std::string& line : indexed.report.lines(9)) {
        said += line + "\n";
      }
      EXPECT_EQ(indexed.report.objects,
                indexed.report.boxes + indexed.report.crowds +
                    indexed.report.dropped + indexed.report.left_out);
      if (odd.is_read) expect_boxes(indexed.dataset);
      // The corrected copy has the boxes that were read.
      const auto splits = verify_data(config, {});
      write_corrected_copy(splits, config.names, folder.path() / "out");
      const IndexedDataset copy = index_dataset(
          configs::load_data_config(folder.path() / "out/data.yaml"),
          Split::kTrain);
      expect_boxes(copy.dataset);
      EXPECT_EQ(copy.report.num_faults(), 0);
    } catch (const Error& error) {
      said += error.what();
    }
    EXPECT_EQ(is_read, odd.is_read) << said;
    EXPECT_THAT(said, HasSubstr(odd.said));
  }
}

// A data set of four images with one label file each, named by their numbers.
configs::DataConfig data_set(const TemporaryFolder& folder,
                             const std::string& rows, int height, int width) {
  for (int i = 0; i < kImages; ++i) {
    const std::string n = std::to_string(i);
    folder.write("images/" + n + ".bmp",
                 encode_bmp(test_picture(height, width, 1)));
    folder.write("labels/" + n + ".txt", rows);
  }
  return configs::load_data_config(
      folder.write("data.yaml", "train: images\nval: images\nnames: [a, b]\n"));
}

std::string report_text(const configs::DataConfig& config) {
  std::string text;
  for (const std::string& line :
       index_dataset(config, Split::kTrain).report.lines(9)) {
    text += line + "\n";
  }
  return text;
}

std::string refusal_text(const configs::DataConfig& config) {
  try {
    return "not refused: " + report_text(config);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(OddLabels, TopLeftCornersAreReadAsSuch) {
  const TemporaryFolder folder;
  const configs::DataConfig config =
      data_set(folder, "1 .05 .5 .3 .2\n0 .6 0 .2 .4\n", 20, 40);
  const IndexedDataset indexed = index_dataset(config, Split::kTrain);
  EXPECT_EQ(indexed.report.num_faults(), 0);
  ASSERT_EQ(indexed.dataset.labels(0).size(), 2U);
  const BoxLabel box = indexed.dataset.labels(0)[0];
  EXPECT_NEAR(box.cx, .2, 1e-6);
  EXPECT_NEAR(box.cy, .6, 1e-6);
  EXPECT_NEAR(box.w, .3, 1e-6);
  const std::string text = report_text(config);
  EXPECT_THAT(text, HasSubstr("labels/0.txt, are read as"));
  EXPECT_THAT(text, HasSubstr("top-left corners, not centres"));
  EXPECT_THAT(text, HasSubstr("(8 of 8 looked at)"));
  EXPECT_THAT(text, HasSubstr("--fix-to"));
}

// As top-left corners, these boxes would reach beyond the right edge.
TEST(OddLabels, CentresOfBoxesThatStickOutStayCentres) {
  const TemporaryFolder folder;
  const configs::DataConfig config =
      data_set(folder, "1 .05 .5 .3 .2\n0 .9 .5 .3 .4\n", 20, 40);
  EXPECT_THAT(report_text(config), HasSubstr("8 stick out of the image"));
}

TEST(OddLabels, PercentIsNamedIfTheImagesAreLarger) {
  for (const int width : {192, 64}) {
    const TemporaryFolder folder;
    const std::string text = refusal_text(
        data_set(folder, "1 30 50 40 50\n0 80.5 60 10 20\n", 48, width));
    EXPECT_THAT(text, HasSubstr(width > 100 ? "in percent" : "8 in pixels"));
    EXPECT_THAT(text, HasSubstr(width > 100 ? "divide x, y, w and h by 100"
                                            : "as fractions"));
  }
}

TEST(OddLabels, ARefusedClassComesWithTheClassesAndTheListThatHasIt) {
  const TemporaryFolder folder;
  const configs::DataConfig config =
      data_set(folder, "2 .3 .5 .4 .5\n", 20, 40);
  folder.write("labels/classes.txt", "a\nb\nc\n");
  const std::string text = refusal_text(config);
  EXPECT_THAT(text, HasSubstr("0 to 1: a, b (label files"));
  EXPECT_THAT(text, HasSubstr("classes.txt has 3 classes, "));
  const std::vector<VerifiedSplit> splits = verify_data(config, {});
  EXPECT_THAT(verification_text(splits, false),
              HasSubstr("names 2 classes: a, b"));
  EXPECT_THAT(splits[0].report.lines(1).at(1),
              HasSubstr("labels/classes.txt: list of other classes"));
}

TEST(OddLabels, AListOfClassesIsNotTheReasonForMissingBoxes) {
  const TemporaryFolder folder;
  const configs::DataConfig config = data_set(folder, "1 .3 .5 0 .5\n", 20, 40);
  folder.write("classes.txt", "b\na\n");
  EXPECT_THAT(refusal_text(config), HasSubstr("4 zero sizes, first "));
}

TEST(OddLabels, OneClassForAllNeedsNoOrder) {
  const TemporaryFolder folder;
  const configs::DataConfig config =
      data_set(folder, "1 .3 .5 .4 .5\n", 20, 40);
  folder.write("classes.txt", "b\na\n");
  IndexOptions options;
  options.single_cls = true;
  EXPECT_EQ(index_dataset(config, Split::kTrain, options).report.num_faults(),
            0);
}

TEST(OddLabels, AStatedSizeThatBoxesExceedIsNamed) {
  const TemporaryFolder folder;
  data_set(folder, "", 20, 40);
  folder.write("t.json", coco(R"(, "width": 9, "height": 9)",
                              R"("bbox": [4, 5, 16, 10])"));
  EXPECT_THAT(report_text(configs::load_data_config(
                  folder.write("data.yaml", kCocoYaml))),
              HasSubstr("labelled at 9 x 9, the image has 40 x 20; a box ends "
                        "at x 20, y 15, so the size in the labels is wrong): "
                        "boxes taken as pixels of the image"));
}

}  // namespace
}  // namespace headroom::labels
