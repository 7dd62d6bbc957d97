#include <gtest/gtest.h>

#include <opencv2/imgproc.hpp>

#include "tests/worker/data/data_files.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/codecs/image_writer.h"
#include "worker/data/loader/image_store.h"
#include "worker/pictures/batch_pictures.h"
#include "worker/pictures/label_picture.h"
#include "worker/pictures/metric_pictures.h"

namespace headroom::pictures {
namespace {

class Pictures : public ::testing::Test {
 protected:
  Pictures() : dataset_(indexed_data_set(folder_, 23)) {}

  loader::LoaderOptions options(loader::LoaderMode mode) const {
    loader::LoaderOptions result;
    result.dataset = &dataset_;
    result.mode = mode;
    result.seed = 3;
    result.image_height = 64;
    result.image_width = 96;
    result.global_batch_size = 5;
    return result;
  }
  static cv::Mat drawn(const loader::LoaderOptions& options, int64_t index) {
    BatchPicture picture(options, index);
    while (picture.advance()) {
    }
    return picture.picture().clone();
  }

  TemporaryFolder folder_;
  labels::Dataset dataset_;
};

// The picture is the same on every rank and under every layout.
TEST_F(Pictures, ABatchLooksTheSameUnderAnyLayout) {
  for (const loader::LoaderMode mode :
       {loader::LoaderMode::kTrainMosaic, loader::LoaderMode::kTrainRect,
        loader::LoaderMode::kValidation}) {
    const cv::Mat whole = drawn(options(mode), 1);
    loader::LoaderOptions part = options(mode);
    part.data_parallel_size = 4;
    part.data_parallel_rank = 2;
    part.micro_batch_size = 1;
    part.first_step = 7;
    part.own_rows = [](int64_t) { return plan::SampleRange{0, 32}; };
    EXPECT_TRUE(same_pixels(drawn(part, 1), whole));
    if (mode == loader::LoaderMode::kTrainMosaic) {
      part.seed = 4;
      EXPECT_FALSE(same_pixels(drawn(part, 1), whole));
    }
  }
}

TEST_F(Pictures, WindowsAreShownWhereTrainingHasThem) {
  loader::LoaderOptions crops = options(loader::LoaderMode::kTrainMosaic);
  crops.image_height = crops.image_width = 32;
  const cv::Mat shrunk = drawn(crops, 1);
  crops.random_crop = true;
  const cv::Mat windows = drawn(crops, 1);
  EXPECT_FALSE(same_pixels(windows, shrunk));
  EXPECT_TRUE(same_pixels(drawn(crops, 1), windows));
  // A picture of half the size shows the same part of the image.
  loader::ImageStore::Options size;
  size.height = size.width = 32;
  loader::ImageStore store(dataset_, size);
  tiles::RandomCrops training(dataset_, store, {3, 0, 0}, 32, 32);
  SmallImages small(dataset_, 16, 16);
  SmallCrops pictured(crops, small, {3, 0, 0}, 16, 16);
  int cut = 0;
  for (int64_t sample = 0; sample < dataset_.size(); ++sample) {
    const augment::LoadedImage one = pictured.load(sample, codecs::kAllRows);
    EXPECT_EQ(pictured.loaded_size(sample),
              (codecs::ImageSize{one.pixels.rows, one.pixels.cols}));
    if (!training.is_cut(sample)) continue;
    ++cut;
    const augment::LoadedImage other = training.load(sample, codecs::kAllRows);
    EXPECT_TRUE(
        same_pixels(one.pixels.clone(),
                    augment::resize_loaded(
                        other.pixels, pictured.loaded_size(sample), false)));
    EXPECT_TRUE(std::equal(one.labels.begin(), one.labels.end(),
                           other.labels.begin(), other.labels.end()));
  }
  EXPECT_GT(cut, 5);
}

TEST_F(Pictures, AMissingBatchHasNoSamples) {
  EXPECT_TRUE(BatchPicture(options(loader::LoaderMode::kValidation), 5)
                  .samples()
                  .empty());
  EXPECT_EQ(BatchPicture(options(loader::LoaderMode::kValidation), 4)
                .samples()
                .size(),
            3u);
  loader::LoaderOptions few = options(loader::LoaderMode::kValidation);
  few.global_batch_size = 23;
  EXPECT_EQ(BatchPicture(few, 0).samples().size(), 16u) << "no more fit";
  EXPECT_EQ(pictured_samples(few).size(), 16u);
  EXPECT_EQ(pictured_samples(options(loader::LoaderMode::kValidation)).size(),
            15u);
}

// A box in the source's pixels is drawn at its object.
TEST_F(Pictures, DetectionsAreDrawnInTheirPlace) {
  folder_.write("images/one/a.bmp",
                encode_bmp(cv::Mat(200, 100, CV_8UC3, cv::Scalar::all(9))));
  folder_.write("labels/one/a.txt", "0 .5 .5 .2 .2\n");
  const labels::Dataset one = indexed_images(folder_, "images/one");
  loader::LoaderOptions asked = options(loader::LoaderMode::kValidation);
  asked.dataset = &one;
  asked.image_height = asked.image_width = 640;
  BatchPicture nothing(asked, 0), found(asked, 0);
  EXPECT_FALSE(nothing.advance(std::vector<metrics::Detection>{}));
  found.advance({{{20, 100, 80, 180}, 0.9f, 1}});
  cv::Mat difference;
  cv::absdiff(nothing.picture(), found.picture(), difference);
  cv::Mat changed;
  cv::extractChannel(difference, changed, 0);
  cv::Rect around = cv::boundingRect(changed > 0);
  const double scale = found.picture().rows / 200.0;
  const double left = (found.picture().cols - 100 * scale) / 2 + 20 * scale;
  EXPECT_NEAR(around.x, left, 6);
  EXPECT_NEAR(around.y + around.height, 180 * scale, 8);
}

TEST_F(Pictures, LargeFilesAreReadInBands) {
  // The image has 5 megapixels; its left half is dark.
  cv::Mat large(2000, 2600, CV_8UC3, cv::Scalar(200, 100, 50));
  large.colRange(0, 1300).setTo(cv::Scalar(10, 20, 30));
  folder_.write("images/large/a.jpg", codecs::encode_jpeg(large, 95));
  folder_.write("labels/large/a.txt", "0 .5 .5 .2 .2\n");
  const labels::Dataset one = indexed_images(folder_, "images/large");
  SmallImages images(one, 130, 130);
  const augment::LoadedImage image = images.load(0, codecs::kAllRows);
  EXPECT_EQ(image.fault, "");
  EXPECT_EQ(image.pixels.size(), cv::Size(130, 100));
  EXPECT_NEAR(image.pixels.at<cv::Vec3b>(50, 20)[0], 10, 4);
  EXPECT_NEAR(image.pixels.at<cv::Vec3b>(50, 110)[0], 200, 4);
  folder_.write("images/large/a.jpg", "no picture");
  const augment::LoadedImage broken = images.load(0, codecs::kAllRows);
  EXPECT_NE(broken.fault, "");
  EXPECT_TRUE(broken.labels.empty());
  EXPECT_EQ(broken.pixels.size(), cv::Size(130, 100));
}

TEST_F(Pictures, LabelsAreDrawnAlsoWhereThereAreNone) {
  const cv::Mat some = draw_labels(dataset_);
  EXPECT_GT(some.total(), 1'000'000u);
  EXPECT_FALSE(same_pixels(draw_labels(labels::Dataset()), some));
}

// There are two detections: that of class 0 is correct, that of class 1 is not.
MetricFigures figures_of(size_t num_classes) {
  MetricFigures figures;
  std::vector<metrics::DetectionRecord> records(2);
  records[0] = {0.9f, 0, {}};
  records[0].correct.fill(true);
  records[1] = {0.4f, 1, {}};
  std::vector<int64_t> labels(num_classes, 1);
  figures.precision = metrics::compute_average_precision(records, labels);
  for (size_t c = 0; c < num_classes; ++c) {
    figures.class_names.push_back("class" + std::to_string(c));
  }
  figures.confusions = {{0, 0}, {1, metrics::ConfusionCount::kBackground}};
  return figures;
}

TEST(MetricPictures, FourCurvesAndAMatrix) {
  for (const size_t classes : {2u, 80u}) {
    const MetricFigures figures = figures_of(classes);
    std::vector<std::string> names;
    for (const NamedPicture& one : draw_curves(figures, "epoch 1")) {
      names.push_back(one.file);
      EXPECT_GT(one.pixels.total(), 100'000u);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"PR_curve.png", "P_curve.png",
                                               "R_curve.png", "F1_curve.png"}));
    EXPECT_FALSE(draw_confusion_matrix(figures, "").empty());
  }
}

TEST(MetricPictures, WithoutLabelsThereAreNoCurves) {
  MetricFigures figures;
  figures.class_names = {"a"};
  figures.precision =
      metrics::compute_average_precision({}, std::vector<int64_t>{0});
  EXPECT_TRUE(draw_curves(figures, "").empty());
  EXPECT_FALSE(draw_confusion_matrix(figures, "").empty());
}

TEST(ResultsPicture, EpochsWithoutValidationAreGaps) {
  const TemporaryFolder folder;
  const std::string header =
      "epoch,train/box_loss,train/obj_loss,train/cls_loss,metrics/precision,"
      "metrics/recall,metrics/mAP_0.5,metrics/mAP_0.5:0.95,val/box_loss,"
      "val/obj_loss,val/cls_loss,x/lr0,x/lr1,x/lr2\n";
  EXPECT_FALSE(draw_results(folder.path() / "none.csv").has_value());
  EXPECT_FALSE(draw_results(folder.write("empty.csv", header)).has_value());
  const auto some = draw_results(folder.write(
      "some.csv", header + "0,0.1,0.2,nan,,,,,,,,0,0,0\n"
                           "1,0.1,0.2,inf,.5,.5,.5,.5,1,1,1,0,0,0\n"
                           "2,0.1\n"));
  ASSERT_TRUE(some.has_value());
  EXPECT_GT(some->total(), 1'000'000u);
}

}  // namespace
}  // namespace headroom::pictures
