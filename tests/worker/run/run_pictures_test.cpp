#include "worker/run/run_pictures.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "tests/worker/data/data_files.h"
#include "worker/data/codecs/image.h"

namespace headroom::run {
namespace {

namespace fs = std::filesystem;

class RunPicturesTest : public ::testing::Test {
 protected:
  RunPicturesTest() : dataset_(indexed_data_set(folder_, 23)) {
    run_ = folder_.path() / "run";
    fs::create_directories(run_);
  }

  RunPictures::Subject subject(const fs::path& folder) {
    RunPictures::Subject result;
    result.folder = folder;
    for (loader::LoaderOptions* options :
         {&result.training, &result.validation}) {
      options->dataset = &dataset_;
      options->image_height = options->image_width = 64;
      options->global_batch_size = 4;
    }
    result.validation.mode = loader::LoaderMode::kValidation;
    result.say = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      said_.push_back(line);
    };
    return result;
  }
  static validation::ValidationResult validated() {
    validation::ValidationResult result;
    result.curves =
        metrics::compute_average_precision({}, std::vector<int64_t>{2, 0, 1});
    return result;
  }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(run_)) {
      names.insert(entry.path().filename());
      EXPECT_TRUE(codecs::decode_image(entry.path()).ok()) << entry.path();
    }
    return names;
  }

  TemporaryFolder folder_;
  labels::Dataset dataset_;
  fs::path run_;
  std::mutex mutex_;
  std::vector<std::string> said_;
};

TEST_F(RunPicturesTest, AllThatYolov5Draws) {
  RunPictures pictures(subject(run_));
  pictures.begin();
  pictures.note(validated(), "epoch 1", true);
  pictures.finish();
  EXPECT_EQ(
      files(),
      (std::set<std::string>{
          "F1_curve.png", "PR_curve.png", "P_curve.png", "R_curve.png",
          "confusion_matrix.png", "labels.jpg", "train_batch0.jpg",
          "train_batch1.jpg", "train_batch2.jpg", "val_batch0_labels.jpg",
          "val_batch0_pred.jpg", "val_batch1_labels.jpg", "val_batch1_pred.jpg",
          "val_batch2_labels.jpg", "val_batch2_pred.jpg"}));
  EXPECT_TRUE(said_.empty());
}

TEST_F(RunPicturesTest, TheBestOfThisStartIsDrawnElseExistingPicturesStay) {
  const fs::path curve = run_ / "PR_curve.png";
  const auto draw = [&](bool is_best) {
    RunPictures pictures(subject(run_));
    pictures.note(validated(), is_best ? "epoch 1" : "epoch 2", is_best);
    pictures.note(validated(), "epoch 3", false);
    pictures.finish();
    return read_bytes(curve);
  };
  const std::string newest = draw(false);
  const std::string best = draw(true);
  EXPECT_NE(newest, best) << "another title";
  EXPECT_EQ(draw(false), best);
}

TEST_F(RunPicturesTest, AFolderThatCannotBeWrittenCostsLines) {
  const fs::path nowhere = folder_.path() / "gone" / "run";
  RunPictures pictures(subject(nowhere));
  pictures.begin();
  pictures.note(validated(), "epoch 1", true);
  pictures.finish();
  // There is one line for the labels, one for each of three training batches,
  // one for the curves and one for the matrix. Each of three validation batches
  // has two lines, for labels and boxes.
  EXPECT_EQ(said_.size(), 12u);
  EXPECT_NE(said_.front().find("labels.jpg is not drawn: "), std::string::npos)
      << said_.front();
}

TEST_F(RunPicturesTest, PicturesThatAreNotDrawnYetAreSkipped) {
  {
    RunPictures pictures(subject(run_));
    pictures.begin();
  }
  EXPECT_TRUE(said_.empty());
  for (const std::string& name : files()) {
    EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  }
}

TEST_F(RunPicturesTest, TooManyClassesForAMatrix) {
  RunPictures::Subject asked = subject(run_);
  std::string names;
  configs::DataConfig config = data_config(folder_, folder_.path() / "images");
  config.names.clear();
  for (int i = 0; i < 1001; ++i)
    config.names.push_back("c" + std::to_string(i));
  const labels::Dataset many =
      labels::index_dataset(config, labels::Split::kTrain).dataset;
  asked.validation.dataset = &many;
  RunPictures pictures(std::move(asked));
  pictures.note(validated(), "epoch 1", true);
  pictures.finish();
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("1001 classes"), std::string::npos) << said_[0];
}

}  // namespace
}  // namespace headroom::run
