#include "worker/data/loader/shared_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <vector>

#include "tests/support/file_size_limit.h"
#include "tests/support/forked_child.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/loader/image_store.h"

namespace headroom::loader {
namespace {

using testing::ForkedChild;
using ::testing::HasSubstr;

// An image of a sample is its number, repeated.
std::vector<uint8_t> pixels_of(int64_t sample, size_t bytes = 1000) {
  return std::vector<uint8_t>(bytes, static_cast<uint8_t>(sample + 1));
}
bool has(const SharedImages& images, int64_t sample, size_t bytes = 1000) {
  const uint8_t* const found = images.find(sample);
  return found != nullptr &&
         std::ranges::equal(std::span(found, bytes), pixels_of(sample, bytes));
}

class SharedImagesTest : public ::testing::Test {
 protected:
  static constexpr int64_t kImages = 200;
  static constexpr int64_t kRoomy = 1 << 20;

  std::shared_ptr<SharedImages> open(int64_t bytes = kRoomy,
                                     SharedImages::Content content = {
                                         7, kImages}) {
    problem_ = "";
    return SharedImages::open(file_->descriptor(), content, bytes, problem_);
  }

  std::unique_ptr<SharedFile> file_ = SharedFile::make("images");
  std::string problem_;
};

TEST_F(SharedImagesTest, AnotherProcessFindsWhatOneAdds) {
  const auto own = open();
  EXPECT_EQ(own->find(3), nullptr);
  EXPECT_EQ(ForkedChild([this] {
              open()->add(3, pixels_of(3));
              return 0;
            }).wait(),
            0);
  EXPECT_TRUE(has(*own, 3));
  EXPECT_EQ(own->find(2), nullptr);
  own->add(2, pixels_of(2));
  EXPECT_TRUE(has(*open(), 2));
  EXPECT_EQ(own->taken_bytes(), 2 * 1024);
}

TEST_F(SharedImagesTest, TheFirstImagesThatFitStay) {
  const auto images = open(2200);
  for (int64_t i = 0; i < 4; ++i) images->add(i, pixels_of(i));
  EXPECT_TRUE(has(*images, 0));
  EXPECT_TRUE(has(*images, 1));
  EXPECT_EQ(images->find(2), nullptr);
  images->add(3, pixels_of(3, 50));
  EXPECT_TRUE(has(*images, 3, 50)) << "a small one still fits";
  images->add(0, pixels_of(9));
  EXPECT_TRUE(has(*images, 0)) << "an image is never replaced";
  EXPECT_LE(images->taken_bytes(), images->room_bytes());
}

TEST_F(SharedImagesTest, WithoutRoomThereAreNoImages) {
  const auto images = open(0);
  images->add(0, pixels_of(0));
  EXPECT_EQ(images->find(0), nullptr);
}

// Every process adds every image, in another order.
TEST_F(SharedImagesTest, ProcessesAddTheSameImagesAtOnce) {
  constexpr int kProcesses = 6;
  const auto images = open();
  std::vector<std::unique_ptr<ForkedChild>> children;
  for (int child = 0; child < kProcesses; ++child) {
    children.push_back(std::make_unique<ForkedChild>([this, child] {
      const auto own = open();
      bool is_right = true;
      for (int64_t i = 0; i < kImages; ++i) {
        const int64_t sample = child % 2 == 0 ? i : (i * 37 + child) % kImages;
        own->add(sample, pixels_of(sample));
        is_right = is_right && has(*own, sample);
      }
      return is_right ? 0 : 1;
    }));
  }
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
  for (int64_t i = 0; i < kImages; ++i) EXPECT_TRUE(has(*images, i)) << i;
  // Room that is lost where two processes add an image at the same moment.
  EXPECT_GE(images->taken_bytes(), kImages * 1024);
  EXPECT_LE(images->taken_bytes(), 2 * kImages * 1024);
}

// Writing this image takes longer than the parent needs to notice it.
TEST_F(SharedImagesTest, AnImageWhoseWriterIsKilledIsAddedByAnother) {
  constexpr size_t kLarge = size_t{200} << 20;
  const auto images = open(3 * kLarge);
  ForkedChild child([this] {
    const std::vector<uint8_t> pixels = pixels_of(5, kLarge);
    open()->add(5, pixels);
    return 0;
  });
  while (images->taken_bytes() == 0) {
  }
  ASSERT_EQ(child.kill(), -SIGKILL);
  ASSERT_EQ(images->find(5), nullptr) << "the writer was killed too late";
  EXPECT_EQ(images->taken_bytes(), kLarge) << "its room is lost";
  images->add(6, pixels_of(6));
  EXPECT_TRUE(has(*images, 6)) << "others are not blocked";
  images->add(5, pixels_of(5, kLarge));
  EXPECT_TRUE(has(*images, 5, kLarge));
}

// A process is killed at any moment, again and again.
TEST_F(SharedImagesTest, KilledProcessesLeaveOnlyWholeImages) {
  const auto images = open();
  for (int round = 0; round < 20; ++round) {
    ForkedChild child([this, round] {
      const auto own = open();
      for (int64_t i = 0;; ++i) {
        const int64_t sample = (i + round * 10) % kImages;
        own->add(sample, pixels_of(sample));
        if (i % 10 == 0) usleep(500);
      }
      return 0;
    });
    usleep(1000 * (round % 7));
    child.kill();
    for (int64_t i = 0; i < kImages; ++i) {
      EXPECT_TRUE(images->find(i) == nullptr || has(*images, i)) << i;
    }
  }
  for (int64_t i = 0; i < kImages; ++i) images->add(i, pixels_of(i));
  for (int64_t i = 0; i < kImages; ++i) EXPECT_TRUE(has(*images, i)) << i;
}

TEST_F(SharedImagesTest, AProcessThatStartsLaterFindsTheImages) {
  open()->add(1, pixels_of(1));  // this process has left when the next starts
  EXPECT_TRUE(has(*open(), 1));
}

TEST_F(SharedImagesTest, OtherContentIsReplacedOnceNobodyUsesIt) {
  auto old = open();
  old->add(1, pixels_of(1));
  constexpr SharedImages::Content kOther{8, kImages};
  EXPECT_EQ(open(2048, kOther), nullptr);
  EXPECT_EQ(problem_, "the shared memory has other images");
  EXPECT_TRUE(has(*old, 1));
  old.reset();
  const auto images = open(2048, kOther);
  ASSERT_NE(images, nullptr) << problem_;
  EXPECT_EQ(images->find(1), nullptr);
  EXPECT_EQ(images->room_bytes(), 2048);
  images->add(1, pixels_of(9));
  EXPECT_EQ(*images->find(1), 10);
  EXPECT_EQ(open(), nullptr) << "the old content is gone";
}

TEST_F(SharedImagesTest, AProcessKilledWhileItLaysOutTheFileIsReplaced) {
  ASSERT_TRUE(file_->resize(100'000));  // and did not seal it
  ASSERT_TRUE(file_->write(0, "rubbish", 7));
  const auto images = open();
  ASSERT_NE(images, nullptr) << problem_;
  EXPECT_EQ(images->room_bytes(), kRoomy);
}

// The limit of a file's size takes the place of memory that has run out.
TEST_F(SharedImagesTest, MemoryThatCannotBeHadIsSaid) {
  {
    const FileSizeLimit limit(1000);
    EXPECT_EQ(open(int64_t{8} << 30), nullptr);
  }
  EXPECT_THAT(problem_, HasSubstr("memory for 8 GiB of images cannot be had "
                                  "(File too large)"));
  EXPECT_NE(open(), nullptr);
}

TEST_F(SharedImagesTest, WhenMemoryRunsOutNoMoreImagesAreAdded) {
  const auto images = open();
  images->add(0, pixels_of(0));
  {
    const FileSizeLimit limit(5000);
    images->add(1, pixels_of(1));
  }
  EXPECT_EQ(images->find(1), nullptr);
  EXPECT_TRUE(has(*images, 0));
}

TEST_F(SharedImagesTest, AFileThatIsNotOpenIsAProblem) {
  EXPECT_EQ(SharedImages::open(9999, {7, kImages}, kRoomy, problem_), nullptr);
  EXPECT_THAT(problem_, HasSubstr("cannot be opened"));
}

// Two stores stand for two processes.
class SharedStores : public SharedImagesTest {
 protected:
  SharedStores() {
    folder_.write("images/1.bmp", encode_bmp(test_picture(32, 64, 1)));
    folder_.write("images/2.bmp", encode_bmp(test_picture(128, 96, 2)));
    folder_.write("labels/1.txt", "0 .5 .5 .2 .2\n");
    dataset_ = indexed_images(folder_, "images");
    options_.height = options_.width = 64;
    options_.shared = open(kRoomy, {1, 2});
  }

  TemporaryFolder folder_;
  labels::Dataset dataset_;
  ImageStore::Options options_;
};

TEST_F(SharedStores, OneDecodesForTheOther) {
  ImageStore first(dataset_, options_);
  options_.shared = open(kRoomy, {1, 2});
  ImageStore second(dataset_, options_);
  const cv::Mat whole = first.load(0, codecs::kAllRows).pixels;
  const cv::Mat resized = first.load(1, codecs::kAllRows).pixels;
  std::filesystem::remove_all(folder_.path() / "images");
  EXPECT_TRUE(second.remembers(0));
  const augment::LoadedImage found = second.load(0, codecs::kAllRows);
  EXPECT_EQ(found.fault, "");
  EXPECT_EQ(found.labels.size(), 1u);
  EXPECT_TRUE(same_pixels(found.pixels, test_picture(32, 64, 1)));
  EXPECT_TRUE(same_pixels(found.pixels, whole));
  EXPECT_TRUE(same_pixels(second.load(1, codecs::kAllRows).pixels, resized));
  EXPECT_TRUE(same_pixels(second.load(0, {3, 9}).pixels, whole.rowRange(3, 9)));
}

TEST_F(SharedStores, AnImageThatCannotBeDecodedIsNotShared) {
  folder_.write("images/1.bmp", "BM broken");
  ImageStore store(dataset_, options_);
  EXPECT_NE(store.load(0, codecs::kAllRows).fault, "");
  EXPECT_FALSE(store.remembers(0));
  EXPECT_NE(store.load(0, codecs::kAllRows).fault, "");
}

TEST_F(SharedStores, RowsAloneAreNotShared) {
  ImageStore store(dataset_, options_);
  store.load(0, {3, 9});
  EXPECT_FALSE(store.remembers(0));
}

}  // namespace
}  // namespace headroom::loader
