#include "configs/published_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "configs/layers/model_table.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::refusal_of;
using testing::TemporaryFolder;

class PublishedWeightsTest : public ::testing::Test {
 protected:
  PublishedWeightsTest() {
    ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~PublishedWeightsTest() override { ::unsetenv("XDG_CACHE_HOME"); }

  std::string found(const std::string& given) {
    return find_weights(given, notes_);
  }

  const TemporaryFolder folder_;
  std::vector<std::string> notes_;
};

TEST_F(PublishedWeightsTest, EachIsOfAShippedModelAndHasAnHttpsAddress) {
  EXPECT_EQ(published_weights().size(), 25u);
  for (const PublishedWeights& weights : published_weights()) {
    EXPECT_EQ(weights.name, weights.network + ".pt");
    EXPECT_FALSE(layers::load_model_table(weights.network).layers.empty());
    EXPECT_TRUE(weights.address.starts_with("https://"));
    EXPECT_TRUE(weights.address.ends_with("/" + weights.name));
    EXPECT_EQ(weights.licence, "AGPL-3.0");
  }
}

TEST_F(PublishedWeightsTest, AFetchedFileIsFoundByItsNameWithANote) {
  const std::string file =
      folder_.write("headroom/weights/yolov5n.pt", "weights");
  EXPECT_EQ(found("yolov5n.pt"), file);
  EXPECT_THAT(notes_, ElementsAre("weights: yolov5n.pt is " + file +
                                  ", which headroom fetch stored (Ultralytics, "
                                  "AGPL-3.0)"));
}

TEST_F(PublishedWeightsTest, AFileThatExistsIsUsedBeforeAFetchedOne) {
  folder_.write("headroom/weights/yolov5n.pt", "fetched");
  const std::string own = folder_.write("own/yolov5n.pt", "own");
  EXPECT_EQ(found(own), own);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(PublishedWeightsTest, OtherNamesAreLeftToTheReaders) {
  EXPECT_EQ(found("gone.pt"), "gone.pt");
  EXPECT_EQ(found(""), "");
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(PublishedWeightsTest, OneThatIsNotThereIsRefusedWithItsAddress) {
  EXPECT_EQ(refusal_of([&] { found("yolov5x6.pt"); }),
            "[weights] there is no file yolov5x6.pt; Ultralytics publishes it "
            "at https://github.com/ultralytics/yolov5/releases/download/v7.0/"
            "yolov5x6.pt under AGPL-3.0, and nothing is downloaded unasked: "
            "type headroom fetch yolov5x6.pt, then this command again");
}

TEST_F(PublishedWeightsTest, APathMeansThatFileAndNoFetchedOne) {
  const std::string file =
      folder_.write("headroom/weights/yolov5n.pt", "weights");
  EXPECT_THAT(refusal_of([&] { found("weights/yolov5n.pt"); }),
              HasSubstr("again, with yolov5n.pt without a folder"));
  // A resumed run names the fetched file itself.
  std::filesystem::remove(file);
  EXPECT_TRUE(
      refusal_of([&] { found(file); }).ends_with("then this command again"));
}

TEST_F(PublishedWeightsTest, WithoutACacheFolderNothingCanBeFetched) {
  ::unsetenv("XDG_CACHE_HOME");
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  ::unsetenv("HOME");
  EXPECT_THAT(refusal_of([] { fetched_weights_folder(); }),
              HasSubstr("set HOME, or XDG_CACHE_HOME"));
  EXPECT_THAT(refusal_of([&] { found("yolov5n.pt"); }),
              HasSubstr("headroom fetch yolov5n.pt"));
  if (!home.empty()) ::setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace headroom::configs
