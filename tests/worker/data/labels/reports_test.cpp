// Data sets that users reported, from ../shared/datasets/reports. Each is read
// correctly, and the report says how; or it is refused with the reason and a
// remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/labels/verification.h"

namespace headroom::labels {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The training objects that most of the folders hold, in pixels of images of
// 96 x 64.
struct Drawn {
  size_t image = 0;
  int32_t class_index = 0;
  double x1 = 0, y1 = 0, x2 = 0, y2 = 0;
};
const std::vector<Drawn>& drawn() {
  static const std::vector<Drawn> objects = {
      {0, 1, 2, 17, 24, 36},  {0, 0, 64, 23, 86, 41}, {1, 1, 28, 5, 46, 25},
      {1, 1, 73, 29, 90, 48}, {2, 0, 3, 24, 19, 40},  {2, 0, 68, 14, 88, 32},
      {3, 1, 18, 9, 37, 29},  {3, 0, 67, 5, 90, 26}};
  return objects;
}

// The result of reading a data set: the report of training, or the refusal.
struct Outcome {
  std::string text;
  Dataset dataset;
  bool is_read = false;
  DataReport report;
};

Outcome outcome_of(const fs::path& data) {
  Outcome outcome;
  try {
    const configs::DataConfig config = configs::load_data_config(data);
    IndexedDataset indexed = index_dataset(config, Split::kTrain);
    for (const std::string& line : indexed.report.lines(99)) {
      outcome.text += line + "\n";
    }
    outcome.dataset = std::move(indexed.dataset);
    outcome.report = std::move(indexed.report);
    outcome.is_read = true;
  } catch (const Error& error) {
    outcome.text = error.what();
  }
  return outcome;
}

// Whether the data set holds exactly the objects of drawn().
bool is_drawn(const Dataset& dataset) {
  if (dataset.num_labels() != static_cast<int64_t>(drawn().size())) {
    return false;
  }
  size_t at = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    for (const BoxLabel& box : dataset.labels(i)) {
      const Drawn& object = drawn()[at++];
      const auto is_near = [](double a, double b) {
        return std::abs(a - b) < 1e-4;
      };
      if (object.image != static_cast<size_t>(i) ||
          object.class_index != box.class_index ||
          !is_near((object.x1 + object.x2) / 2 / 96, box.cx) ||
          !is_near((object.y1 + object.y2) / 2 / 64, box.cy) ||
          !is_near((object.x2 - object.x1) / 96, box.w) ||
          !is_near((object.y2 - object.y1) / 64, box.h)) {
        return false;
      }
    }
  }
  return true;
}

constexpr int64_t kDrawn = -1;    // exactly the objects of drawn()
constexpr int64_t kRefused = -2;  // the data set is refused

struct Report {
  const char* data;   // the data file, or a folder with data.yaml
  int64_t boxes = 0;  // number in training, or kDrawn, or kRefused
  std::vector<const char*> said;
};

const std::vector<Report>& reports() {
  static const std::vector<Report> rows = {
      // The size that a label file states is compared with the picture's.
      {"09-coco-resized",
       kDrawn,
       {"labelled at 96 x 64, the image has 48 x 32",
        "4 labelled at another size"}},
      {"23-exif-raw-labels",
       4,
       {"labelled at 96 x 64, as the image is stored", "boxes turned"}},
      // Boxes as fractions, in pixels, by corners and by centres.
      {"19-csv-normal", kDrawn, {"fractions"}},
      {"18-xyxy-normal", kDrawn, {"corners"}},
      {"18-pixels-1based",
       kRefused,
       {"in pixels", "classes from 1", "labels/train/train0.txt"}},
      {"24-coco-odd/xyxy.yaml", kDrawn, {"corners"}},
      // Rows of keypoints must not be read as polygons.
      {"01-pose-2d", kDrawn, {"keypoints"}},
      {"02-pose-3d-4", kDrawn, {"keypoints"}},
      {"02-pose-3d-5", kDrawn, {"keypoints"}},
      // Unusual line ends and blanks.
      {"12-voc-spaces", kDrawn, {}},
      {"16-lists/comment.yaml", kDrawn, {}},
      {"16-lists/cr.yaml", kDrawn, {}},
      {"16-lists/quoted.yaml", kDrawn, {}},
      {"30-notepad", 10, {"5 images (0 without boxes), 10 boxes\n"}},
      // Every object is counted, also if it is not used.
      {"06-cvat-coco-crowd", kDrawn, {"iscrowd"}},
      {"06b-half-crowd", 4, {"8 objects = 4 boxes + 4 crowds"}},
      {"26-coco-image-per-box", kDrawn, {}},
      {"24-coco-odd/dupimg.yaml", kRefused, {"image 2 is there twice"}},
      {"24-coco-odd/ignore.yaml", 6, {"8 objects = 6 boxes + 2 crowds"}},
      // Swapped corners, and objects without a box.
      {"04-label-studio-negative", kDrawn, {"4 negative sizes", "box kept"}},
      {"11-voc-swapped", kDrawn, {"8 negative sizes", "box kept"}},
      {"24-coco-odd/negative.yaml", kDrawn, {"8 negative sizes", "box kept"}},
      {"07-coco-no-bbox", kDrawn, {"8 without a box"}},
      // Label files that belong to no image.
      {"14a-upper-TXT",
       kRefused,
       {"4 label files that no image reads", "train0.TXT", "train0.txt"}},
      {"14b-jpg-txt",
       kRefused,
       {"4 label files that no image reads", "train0.jpg.txt", "train0.txt"}},
      {"14d-half-upper",
       6,
       {"3 label files that no image reads", "train0.TXT",
        "3 images without a label file"}},
      {"27-orphans",
       6,
       {"3 label files that no image reads", "Train0.txt", "train2 .txt",
        "train1.txt", "2 images without a label file"}},
      {"17-yaml/pathlabels.yaml", kRefused, {"images/train"}},
      // Copies of images that programs hide.
      {"15-hidden-copies",
       kDrawn,
       {"4 images (0 without boxes)", "8 hidden copies"}},
      // Formats of other programs.
      {"05-cvat-yolo11", kDrawn, {}},
      {"05-cvat-yolo11/obj.data", kRefused, {"darknet"}},
      {"13-voc-cvat", kRefused, {"default.txt", "CVAT"}},
      {"16-lists/keras.yaml", kRefused, {"keras"}},
      {"16-lists/paired.yaml", kDrawn, {}},
      {"16-lists/nosuffix.yaml", kRefused, {"train0"}},
      {"18-kitti", kRefused, {"KITTI", "class 'Car'"}},
      {"18-oidv4", kDrawn, {"OIDv4"}},
      {"18-dota", kDrawn, {"DOTA"}},
      {"18-mot", kRefused, {"MOT"}},
      {"18-names", kDrawn, {"names of classes"}},
      {"18-comma", kDrawn, {"commas"}},
      {"18-german", kDrawn, {"decimal comma"}},
      {"19-createml", kRefused, {"CreateML", "_annotations.createml.json"}},
      {"19-createml-named", kRefused, {"CreateML"}},
      {"19-cvat-images", kRefused, {"CVAT", "annotations.xml"}},
      {"19-datumaro", kRefused, {"Datumaro"}},
      {"19-label-studio-json", kRefused, {"Label Studio"}},
      {"19-labelme", kRefused, {"LabelMe"}},
      {"19-supervisely", kRefused, {"Supervisely"}},
      {"19-via", kRefused, {"VIA"}},
      // Paths as Windows writes them.
      {"16-lists/windows.yaml", kDrawn, {}},
      {"16-lists/drive.yaml", kRefused, {"drive"}},
      {"17-yaml/backslash_plain.yaml", kDrawn, {}},
      {"17-yaml/backslash.yaml", kRefused, {"tab"}},
      {"17-yaml/drive.yaml", kRefused, {"drive"}},
      {"17-yaml/home.yaml", kRefused, {"~"}},
      {"17-yaml/env.yaml", kRefused, {"${DATA}", "variable"}},
      {"17-yaml/stray_quote.yaml", kRefused, {"quote"}},
      // A single bad value loses only that value.
      {"17-yaml/supervisely.yaml", kDrawn, {"colors"}},
      {"17-yaml/yolov6.yaml", kDrawn, {"is_coco"}},
      {"17-yaml/yolov7.yaml", kDrawn, {"anno_path"}},
      {"17-yaml/valid.yaml", kRefused, {"val"}},
      {"24-coco-odd/floats.yaml", kDrawn, {}},
      {"24-coco-odd/nan.yaml", 7, {"8 objects = 7 boxes + 1 dropped"}},
      {"24-coco-odd/strbbox.yaml", kDrawn, {}},
      // More variants of the data sets above.
      {"24-coco-odd/bom.yaml", kDrawn, {}},
      {"24-coco-odd/crowdbool.yaml", kDrawn, {}},
      {"24-coco-odd/super0.yaml", kDrawn, {}},
      {"24-coco-odd/cat0.yaml", kDrawn, {}},
      {"24-coco-odd/upper.yaml",
       kRefused,
       {"has class 'Dog'", "0 to 1: cat, dog ("}},
      {"24-coco-odd/concat.yaml", kRefused, {"concat.json"}},
      {"24-coco-odd/noann.yaml", kRefused, {"noann.json"}},
      {"24-coco-odd/imgnoann.yaml", 2, {"3 without boxes"}},
      {"24-coco-odd/absolute.yaml", kRefused, {"leads out"}},
      {"24-coco-odd/urls.yaml", kRefused, {"0000.jpg"}},
      {"17-yaml/fiftyone.yaml", kDrawn, {}},
      {"17-yaml/trailing.yaml", kDrawn, {}},
      {"17-yaml/numbers.yaml", kDrawn, {}},
      {"17-yaml/tabcomment.yaml", kDrawn, {}},
      {"17-yaml/latin1.yaml", kDrawn, {}},
      {"17-yaml/anchor.yaml", kRefused, {"anchor"}},
      {"17-yaml/commas.yaml", kRefused, {"comma"}},
      {"17-yaml/dup.yaml", kRefused, {"both named 'cat'"}},
      {"17-yaml/gap_null.yaml", kRefused, {"name"}},
      {"17-yaml/nccount.yaml", kRefused, {"nc is 80"}},
      {"17-yaml/nonames.yaml", kRefused, {"names"}},
      {"17-yaml/noval.yaml", kRefused, {"val is empty"}},
      {"17-yaml/strnames.yaml", kRefused, {"names is 'cat dog'"}},
      {"17-yaml/utf16.yaml", kRefused, {"UTF-16"}},
  };
  return rows;
}

// The corrected copy has exactly the labels that were read from the faulty data
// set, and reading the copy reports no fault.
void expect_same_copy(const fs::path& data, const Dataset& dataset) {
  const TemporaryFolder folder;
  const configs::DataConfig config = configs::load_data_config(data);
  write_corrected_copy(verify_data(config, {}), config.names,
                       folder.path() / "out");
  const IndexedDataset copy =
      index_dataset(configs::load_data_config(folder.path() / "out/data.yaml"),
                    Split::kTrain);
  EXPECT_EQ(copy.report.num_faults(), 0);
  ASSERT_EQ(copy.dataset.size(), dataset.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(copy.dataset.labels(i), dataset.labels(i)));
  }
}

TEST(Reports, EachIsReadRightlyOrRefusedByName) {
  const fs::path root = shared_data_set("reports");
  if (!fs::exists(root)) GTEST_SKIP() << kSharedDataMissing;
  for (const Report& row : reports()) {
    SCOPED_TRACE(row.data);
    const Outcome outcome = outcome_of(root / row.data);
    if (row.boxes == kRefused) {
      EXPECT_FALSE(outcome.is_read) << outcome.text;
    } else if (row.boxes == kDrawn) {
      EXPECT_TRUE(outcome.is_read && is_drawn(outcome.dataset)) << outcome.text;
    } else {
      EXPECT_TRUE(outcome.is_read) << outcome.text;
      EXPECT_EQ(outcome.dataset.num_labels(), row.boxes) << outcome.text;
    }
    if (outcome.is_read) expect_same_copy(root / row.data, outcome.dataset);
    for (const char* part : row.said) {
      EXPECT_THAT(outcome.text, HasSubstr(part));
    }
    const DataReport& report = outcome.report;
    EXPECT_EQ(report.objects,
              report.boxes + report.crowds + report.dropped + report.left_out)
        << outcome.text;
  }
}

}  // namespace
}  // namespace headroom::labels
