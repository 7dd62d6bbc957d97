// One data set in three formats gives the same index.
#include "worker/data/labels/label_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/data_files.h"
#include "tests/worker/data/refusal.h"
#include "worker/data/labels/dataset.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string voc_object(const std::string& name, const std::string& x1,
                       const std::string& y1, const std::string& x2,
                       const std::string& y2) {
  return "<object><name>" + name + "</name><bndbox><xmin>" + x1 +
         "</xmin><ymin>" + y1 + "</ymin><xmax>" + x2 + "</xmax><ymax>" + y2 +
         "</ymax></bndbox></object>\n";
}

// Pictures of 40 x 20 and 10 x 30.
class LabelFormats : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("images/1.bmp", encode_bmp(test_picture(20, 40, 1)));
    folder_.write("images/sub/2.bmp", encode_bmp(test_picture(30, 10, 2)));
  }

  IndexedDataset voc(const std::string& names = "") {
    folder_.write("voc/Annotations/1.xml",
                  "<annotation>\n<size><width>9</width></size>\n" +
                      voc_object("b", "4", "5", "20", "15") +
                      voc_object("a", "0", "0.5", "40", "20") +
                      "</annotation>");
    folder_.write("voc/Annotations/2.xml",
                  "<annotation>\n" + voc_object("a", "3", "7", "3", "7") +
                      voc_object("a", "-5", "10", "5", "20") + "</annotation>");
    folder_.write("voc/ImageSets/Main/train.txt", "1\n2 -1\n");
    folder_.write("voc/ImageSets/Main/val.txt", "1\n");
    if (!names.empty()) folder_.write("voc/data.yaml", "names: " + names);
    config_ = configs::load_data_config(folder_.path() / "voc");
    return index_dataset(config_, Split::kTrain);
  }

  IndexedDataset coco(const std::string& annotations,
                      const std::string& names = "[a, b]") {
    folder_.write("train.json",
                  "{\"images\": [{\"id\": 20, \"file_name\": \"sub/2.bmp\"},\n"
                  "{\"id\": \"10\", \"file_name\": \"1.bmp\"}],\n"
                  "\"categories\": [{\"id\": 9, \"name\": \"b\"}, {\"id\": 4, "
                  "\"name\": \"a\"}],\n\"annotations\": [\n" +
                      annotations + "]}");
    const fs::path yaml =
        folder_.write("data.yaml",
                      "train: train.json\nval: train.json\nimages: images\n"
                      "names: " +
                          names);
    config_ = configs::load_data_config(yaml);
    return index_dataset(config_, Split::kTrain);
  }

  std::string refusal(const std::string& annotations,
                      const std::string& names = "[a, b]") {
    return refusal_of([&] { coco(annotations, names); });
  }
  // Indexes the training images of a data file with this text.
  IndexedDataset with_yaml(const std::string& text) {
    config_ = configs::load_data_config(folder_.write("data.yaml", text));
    return index_dataset(config_, Split::kTrain);
  }

  TemporaryFolder folder_;
  configs::DataConfig config_;
};

constexpr const char* kBoxes =
    R"({"id": 1, "image_id": 10, "category_id": 9, "bbox": [4, 5, 16, 10]},
{"id": 2, "image_id": 10, "category_id": 4, "bbox": [0, 0.5, 40, 19.5],
 "segmentation": [[0, 0, 1, 1, 2, 2]]},
{"id": 3, "image_id": 20, "category_id": 4, "bbox": [3, 7, 0, 0]},
{"id": 4, "image_id": 20, "category_id": 4, "bbox": [-5, 10, 10, 10]})";

void expect_same(const Dataset& a, const Dataset& b) {
  ASSERT_EQ(a.size(), b.size());
  for (int64_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a.path(i), b.path(i));
    const auto x = a.labels(i), y = b.labels(i);
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << i;
  }
}

TEST_F(LabelFormats, VocAndCocoAreTheSameIndex) {
  const IndexedDataset from_voc = voc();
  EXPECT_THAT(config_.names, ElementsAre("a", "b"));
  EXPECT_EQ(count_boxes(config_, Split::kTrain, {}).boxes,
            (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(count_boxes(from_voc).boxes, (std::vector<int64_t>{2, 1}));
  const IndexedDataset from_coco = coco(kBoxes);
  EXPECT_EQ(count_boxes(config_, Split::kTrain, {}).boxes,
            (std::vector<int64_t>{2, 1}));
  expect_same(from_voc.dataset, from_coco.dataset);
  EXPECT_EQ(from_voc.dataset.labels(0)[0],
            (BoxLabel{1, 12.f / 40, .5f, 16.f / 40, .5f}));
  EXPECT_EQ(from_voc.dataset.labels(1)[0],
            (BoxLabel{0, .25f, .5f, .5f, static_cast<float>(1. / 3)}));
}

TEST_F(LabelFormats, AnnotationsBesideImagesAndACsvAreTheSameIndex) {
  const IndexedDataset expected = voc();
  folder_.write("images/1.xml",
                read_bytes(folder_.path() / "voc/Annotations/1.xml"));
  folder_.write("images/sub/2.xml",
                read_bytes(folder_.path() / "voc/Annotations/2.xml"));
  folder_.write("images/3.bmp", encode_bmp(test_picture(10, 10, 3)));
  folder_.write("labels/3.txt", "1 .5 .5 .2 .2\n");
  const auto load = [&](const std::string& source) {
    return with_yaml("train: " + source + "\nval: " + source +
                     "\nnames: [a, b]\n");
  };
  IndexedDataset beside = load("images");
  // If an image has YOLO labels, these are used.
  EXPECT_EQ(beside.dataset.size(), 3);
  EXPECT_EQ(count_boxes(config_, Split::kTrain, {}).boxes,
            (std::vector<int64_t>{2, 1, 1}));
  fs::remove(folder_.path() / "images/3.bmp");
  fs::remove(folder_.path() / "labels/3.txt");
  beside = load("images");
  expect_same(expected.dataset, beside.dataset);
  EXPECT_EQ(beside.report.num_faults(), 2);

  folder_.write("images_labels.csv",
                "\xEF\xBB\xBF"
                "filename,width,height,class,xmin,ymin,xmax,ymax\r\n"
                "1.bmp,40,20,b,4,5,20,15\r\n"
                "sub/2.bmp,10,30,a,3,7,3,7\r\n"
                "\"1.bmp\",40,20,a,0,0.5,40,20\r\n\r\n"
                "sub/2.bmp,10,30,a,-5,10,5,20\r\n");
  const IndexedDataset csv = load("images_labels.csv");
  expect_same(expected.dataset, csv.dataset);
  EXPECT_THAT(csv.report.lines(9),
              ElementsAre(HasSubstr("2 faults"),
                          HasSubstr("images_labels.csv:3:19: zero size"),
                          HasSubstr("images_labels.csv:6:19: sticks out")));
}

TEST_F(LabelFormats, AnnotationsInAFolderBesideTheImagesAreTheSameIndex) {
  const IndexedDataset expected = voc();
  for (const std::string where : {"labels", "annotations", "Annotations"}) {
    for (const std::string stem : {"1", "2"}) {
      folder_.write(
          where + (stem == "1" ? "/1.xml" : "/sub/2.xml"),
          read_bytes(folder_.path() / "voc/Annotations" / (stem + ".xml")));
    }
    const IndexedDataset found =
        with_yaml("train: images\nval: images\nnames: [a, b]\n");
    expect_same(expected.dataset, found.dataset);
    fs::remove_all(folder_.path() / where);
  }
}

// The tutorials of TensorFlow's detectors write such tables.
TEST_F(LabelFormats, ATableBesideTheImagesIsRead) {
  const IndexedDataset expected = voc();
  const std::string table =
      "filename,width,height,class,xmin,ymin,xmax,ymax\n"
      "1.bmp,40,20,b,4,5,20,15\n"
      "2.bmp,10,30,a,3,7,3,7\n"
      "1.bmp,40,20,a,0,0.5,40,20\n"
      "sub/2.bmp,10,30,a,-5,10,5,20\n";
  const fs::path data =
      folder_.write("data.yaml", "train: images\nval: images\nnames: [a, b]\n");
  for (const std::string where :
       {"train_labels.csv", "images/train_labels.csv", "images_labels.csv"}) {
    const fs::path file = folder_.write(where, table);
    const IndexedDataset found =
        index_dataset(configs::load_data_config(data), Split::kTrain);
    expect_same(expected.dataset, found.dataset);
    EXPECT_THAT(found.report.lines(0)[0],
                HasSubstr(" boxes, labels of " + file.string() + "; 2 faults"));
    expect_same(
        expected.dataset,
        index_dataset(configs::load_data_config(data), Split::kVal).dataset);
    // If images have label files of their own, these are used.
    folder_.write("labels/1.txt", "1 .5 .5 .1 .1\n");
    EXPECT_EQ(index_dataset(configs::load_data_config(data), Split::kTrain)
                  .report.boxes,
              1);
    fs::remove_all(folder_.path() / "labels");
    fs::remove(file);
  }
}

TEST_F(LabelFormats, WrongLinesOfATableBesideTheImagesAreNamed) {
  const fs::path data =
      folder_.write("data.yaml", "train: images\nval: images\nnames: [a, b]\n");
  const auto lines = [&](const std::string& text) {
    folder_.write("train_labels.csv", text);
    return index_dataset(configs::load_data_config(data), Split::kTrain)
        .report.lines(9);
  };
  EXPECT_THAT(
      lines("filename,width,height,class,xmin,ymin,xmax,ymax\n"
            "1.bmp,40,20,b,4,5,20,15\n"
            "1.bmp,40,20,b,4,five,20,15\n"
            "other.bmp,40,20,b,4,5,20,15\n"
            "other.bmp,40,20,b,4,5,20,15\n"
            "1.bmp,40,20,\"b,4,5,20,15\n"
            "1.bmp,40,20\n"),
      ElementsAre(HasSubstr("1 box, "),
                  HasSubstr("train_labels.csv:4:1: unknown image (no image of "
                            "the split is called 'other.bmp'): its boxes "
                            "dropped"),
                  HasSubstr("train_labels.csv:6:13: bad line (the quote is not "
                            "closed): box dropped"),
                  HasSubstr("train_labels.csv:7:10: bad line (3 fields): box "
                            "dropped"),
                  HasSubstr("train_labels.csv:3:17: bad line (ymin 'five' is "
                            "no number): box dropped")));
  EXPECT_THAT(refusal_of([&] { lines("id,label\n1,a\n"); }),
              AllOf(HasSubstr("train_labels.csv:1:1: unreadable labels ("),
                    HasSubstr("has no column 'filename'")));
}

TEST_F(LabelFormats, AnUnreadTableIsNamedWhereNoImageHasABox) {
  folder_.write("labels.csv", "filename,class,xmin,ymin,xmax,ymax\n");
  const configs::DataConfig config = configs::load_data_config(folder_.write(
      "data.yaml", "train: images\nval: images\nnames: [a, b]\n"));
  const auto refusal = [&] {
    return refusal_of([&] { index_dataset(config, Split::kTrain); });
  };
  const std::string table = (folder_.path() / "labels.csv").string();
  EXPECT_THAT(refusal(), HasSubstr(" has a box, but " + table +
                                   " lies there: name it: train: " + table +
                                   ", and in images: the folder that its "
                                   "filenames are in"));
  fs::remove(table);
  folder_.write("images/sub/_annotations.csv", "");
  EXPECT_THAT(refusal(), Not(HasSubstr("lies there")));
  folder_.write("images/labels.csv", "");
  EXPECT_THAT(refusal(), HasSubstr("images/labels.csv lies"));
}

TEST_F(LabelFormats, AFileThatIsNoCocoFileIsNamedByItsKind) {
  for (const auto& [bytes, kind] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "an empty file"},
           {"<html>", "text (HTML or XML)"},
           {"\xFF\xFE{", "UTF-16 text"}}) {
    folder_.write("train.json", bytes);
    EXPECT_THAT(refusal_of([&] {
                  with_yaml(
                      "train: train.json\nval: train.json\n"
                      "names: [a, b]\n");
                }),
                HasSubstr("train.json: it is " + kind +
                          ", not COCO's JSON in UTF-8: name the right file"));
  }
}

TEST_F(LabelFormats, WrongLinesOfACsvAreNamed) {
  const auto index = [&](const std::string& text) {
    folder_.write("boxes.csv", text);
    return with_yaml(
        "train: boxes.csv\nval: boxes.csv\nimages: images\nnames: [a, b]\n");
  };
  const auto lines = index(
                         "class,filename,xmin,ymin,xmax,ymax\n"
                         "a,1.bmp,1,2,8,9\n"
                         "a,1.bmp,1,2,8\n"
                         "a,1.bmp,1,2,8,x\n"
                         "a,../1.bmp,1,2,8,9\n"
                         "a,none.bmp,1,2,8,9\n")
                         .report.lines(9);
  EXPECT_THAT(
      lines,
      ElementsAre(HasSubstr("1 image (0 without boxes), 1 box; 4 faults"),
                  HasSubstr("boxes.csv:3:13: bad line (5 fields): box dropped"),
                  HasSubstr("boxes.csv:5:3: unreadable image (filename "
                            "'../1.bmp' is empty or leads out of its folder)"),
                  HasSubstr("boxes.csv:4:15: bad line (ymax 'x' is no number)"),
                  HasSubstr("images/none.bmp: unreadable image (cannot be "
                            "opened")));
  const auto refusal = [&](const std::string& text) {
    return refusal_of([&] { index(text); });
  };
  EXPECT_THAT(refusal("a,1.bmp,1,2,8,9\n"),
              HasSubstr("boxes.csv has no column 'filename' in its first line: "
                        "write the names of the columns there"));
  EXPECT_THAT(refusal(""), HasSubstr("first line (it is an empty file)"));
  EXPECT_THAT(refusal("filename,class,xmin,ymin,xmax,ymax\n"
                      "1.bmp,dog,1,2,8,9\n"),
              HasSubstr("boxes.csv:2 has class 'dog'"));
}

TEST_F(LabelFormats, FaultsAreNamedByFileLineAndBox) {
  const std::string root = folder_.path().string();
  EXPECT_THAT(
      voc().report.lines(9),
      ElementsAre(
          HasSubstr("2 faults"),
          root + "/voc/Annotations/2.xml:2: zero size (object 'a': x 3 to 3, y "
                 "7 to 7): box dropped",
          root + "/voc/Annotations/2.xml:3: sticks out of the image (object "
                 "'a': x -0.5 to 0.5, y 0.333333 to 0.666667): box clipped to "
                 "the image"));
  EXPECT_THAT(coco(kBoxes).report.lines(9),
              ElementsAre(HasSubstr("2 faults"),
                          root + "/train.json:8: zero size (annotation 3: x 3 "
                                 "to 3, y 7 to 7): box dropped",
                          HasSubstr("train.json:9: sticks out of the image")));
  const auto more = coco(std::string(kBoxes) + R"(,
{"id": 5, "image_id": 99, "category_id": 4, "bbox": [1, 1, 5, 5]},
{"id": 6, "image_id": 10, "category_id": 4, "bbox": [1, 1, 5]},
{"id": 7, "image_id": 10, "category_id": 5, "bbox": [1, 1, 5, 5]},
{"id": 8, "image_id": 10, "category_id": 4, "bbox": [1, 1, 5, 5],
 "iscrowd": 1})")
                        .report;
  EXPECT_EQ(more.counts[static_cast<size_t>(DataFaultKind::kUnknownImage)], 1);
  EXPECT_EQ(more.counts[static_cast<size_t>(DataFaultKind::kBadLine)], 1);
  EXPECT_EQ(more.counts[static_cast<size_t>(DataFaultKind::kBadClass)], 1);
  EXPECT_EQ(more.boxes, 3);  // a crowd has no outline
}

TEST_F(LabelFormats, OutlinesOfCoco) {
  const auto dataset_of = [&](const std::string& segmentation) {
    coco(R"({"id": 1, "image_id": 10, "category_id": 9, "bbox": [4, 5, 16, 10],
"segmentation": )" +
         segmentation + "}");
    IndexOptions options;
    options.keep_outlines = true;
    return index_dataset(config_, Split::kTrain, options);
  };
  const Dataset one = dataset_of("[[4, 5, 20, 5, 12, 15]]").dataset;
  EXPECT_EQ(one.num_polygons(), 1);
  EXPECT_EQ(count_boxes(config_, Split::kTrain, {}).polygons, 1);
  ASSERT_EQ(one.outlines(0).of(0).size(), 3u);
  EXPECT_EQ(one.outlines(0).of(0)[1], (IndexedPoint{.5f, .25f}));
  // The two parts of an object become one outline; a line there and back joins
  // them.
  const Dataset two =
      dataset_of("[[4, 5, 8, 5, 6, 9], [10, 5, 20, 5, 12, 15]]").dataset;
  EXPECT_EQ(two.outlines(0).of(0).size(), 10u);
  // If a part is invalid, the object has no outline. The same holds for a mask.
  // The boxes are kept.
  const IndexedDataset odd = dataset_of("[[4, 5, 20, 5, 12]]");
  EXPECT_EQ(odd.dataset.num_labels(), 1);
  EXPECT_EQ(odd.dataset.num_polygons(), 0);
  EXPECT_THAT(odd.report.lines(9).at(1), HasSubstr("outline left out"));
  const IndexedDataset mask =
      dataset_of(R"({"counts": [1, 2, 3], "size": [4, 5]})");
  EXPECT_EQ(mask.report.num_faults(), 0);
  EXPECT_EQ(mask.dataset.num_labels(), 1);
  EXPECT_EQ(mask.dataset.num_polygons(), 0);
}

TEST_F(LabelFormats, NamesGiveTheOrderOfClasses) {
  const Dataset from_voc = voc("[b, a]").dataset;
  EXPECT_THAT(from_voc.class_names(), ElementsAre("b", "a"));
  EXPECT_EQ(from_voc.labels(0)[0].class_index, 0);
  const Dataset from_coco = coco(kBoxes, "{0: b, 1: a}").dataset;
  expect_same(from_voc, from_coco);
  EXPECT_THAT(refusal(kBoxes, "[a]"),
              HasSubstr("train.json:5 has class 'b', but names in"));
}

TEST_F(LabelFormats, PathsThatLeadOutAndDamagedFilesCostTheirImage) {
  voc();
  folder_.write("voc/Annotations/1.xml", "<annotation>\n<object>");
  folder_.write("voc/ImageSets/Main/train.txt", "1\n2\n../../x\n");
  const DataReport report = index_dataset(config_, Split::kTrain).report;
  EXPECT_EQ(report.images, 1);
  EXPECT_THAT(report.lines(9),
              ElementsAre(HasSubstr("faults"),
                          HasSubstr("train.txt:3: unreadable image (no image "
                                    "'../../x'"),
                          HasSubstr("1.xml: unreadable labels"),
                          HasSubstr("zero size"), HasSubstr("sticks out")));
  folder_.write("voc/Annotations/1.xml", "<html><body>not found</body></html>");
  EXPECT_THAT(index_dataset(config_, Split::kTrain).report.lines(9),
              Contains(HasSubstr("its root is not 'annotation'")));
  for (const auto& [bytes, kind] :
       std::vector<std::pair<std::string, std::string>>{
           {"", "an empty file"},
           {"\x89PNG", "a PNG image"},
           {"a b", "no XML"}}) {
    folder_.write("voc/Annotations/1.xml", bytes);
    EXPECT_THAT(index_dataset(config_, Split::kTrain).report.lines(9),
                Contains(HasSubstr("1.xml: unreadable labels (" + kind +
                                   ", not a Pascal VOC annotation): its image "
                                   "left out")));
  }
  folder_.write("train.json",
                R"({"images": [{"id": 1, "file_name": "../1.bmp"},
                {"id": 2, "file_name": "1.bmp"}],
                "categories": [{"id": 1, "name": "a"}], "annotations": [
                {"image_id": 2, "category_id": 1, "bbox": [1, 1, 2, 2]},
                {"image_id": 1, "category_id": 1, "bbox": [1, 1, 2, 2]}]})");
  const fs::path yaml = folder_.write("data.yaml",
                                      "train: train.json\nval: train.json\n"
                                      "images: images\nnames: [a]\n");
  const auto indexed =
      index_dataset(configs::load_data_config(yaml), Split::kTrain);
  EXPECT_EQ(indexed.dataset.size(), 1);
  EXPECT_THAT(indexed.report.lines(9),
              ::testing::Contains(HasSubstr("leads out of its folder")));
}

TEST(LabelReaders, BloodCellsFromVocAndYolo) {
  const fs::path root = shared_data_set("bccd");
  if (!fs::exists(root)) GTEST_SKIP() << kSharedDataMissing;
  configs::DataConfig voc = configs::load_data_config(root / "voc");
  EXPECT_THAT(voc.names, ElementsAre("Platelets", "RBC", "WBC"));
  const configs::DataConfig yolo =
      configs::load_data_config(root / "data.yaml");
  voc.names = yolo.names;
  for (const Split split : {Split::kTrain, Split::kVal, Split::kTest}) {
    const auto a = index_dataset(voc, split);
    const auto b = index_dataset(yolo, split);
    ASSERT_EQ(a.dataset.size(), b.dataset.size());
    EXPECT_EQ(a.report.num_faults(), b.report.num_faults());
    for (int64_t i = 0; i < a.dataset.size(); ++i) {
      EXPECT_EQ(a.dataset.path(i).filename(), b.dataset.path(i).filename());
      const auto x = a.dataset.labels(i), y = b.dataset.labels(i);
      ASSERT_EQ(x.size(), y.size()) << a.dataset.path(i);
      for (size_t k = 0; k < x.size(); ++k) {
        EXPECT_EQ(x[k].class_index, y[k].class_index);
        EXPECT_NEAR(x[k].cx, y[k].cx, 1e-6);
        EXPECT_NEAR(x[k].cy, y[k].cy, 1e-6);
        EXPECT_NEAR(x[k].w, y[k].w, 1e-6);
        EXPECT_NEAR(x[k].h, y[k].h, 1e-6);
      }
    }
  }
}

}  // namespace
}  // namespace headroom::labels
