// Several processes read one data set, and one of them examines its files.
#include "worker/data/labels/shared_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/forked_child.h"
#include "tests/worker/data/data_files.h"
#include "worker/data/labels/packing.h"

namespace headroom::labels {
namespace {

using testing::ForkedChild;
using ::testing::HasSubstr;

class SharedIndexes : public ::testing::Test {
 protected:
  SharedIndexes() {
    config_ = write_data_set(folder_, 20);
    config_.val = config_.train;
    folder_.write("labels/train/100.txt", "1 .1 .1 .9 .1 .9 .9\n0 bad\n");
  }

  IndexedDataset scan(Split split) const {
    IndexOptions options;
    options.keep_outlines = split == Split::kTrain;
    return index_dataset(config_, split, options);
  }
  std::vector<IndexedDataset> scan_both() const {
    ++*reads_;
    std::vector<IndexedDataset> read;
    read.push_back(scan(Split::kTrain));
    read.push_back(scan(Split::kVal));
    return read;
  }
  std::vector<IndexedDataset> read(const std::string& key = "both") {
    return SharedIndex::read(
        file_->descriptor(), key, [this] { return scan_both(); }, problem_);
  }

  static void expect_same(const IndexedDataset& a, const IndexedDataset& b) {
    EXPECT_EQ(a.dataset.digest(), b.dataset.digest());
    EXPECT_EQ(a.dataset.class_names(), b.dataset.class_names());
    EXPECT_EQ(a.dataset.num_polygons(), b.dataset.num_polygons());
    EXPECT_EQ(a.report.lines(1000), b.report.lines(1000));
    EXPECT_EQ(a.report.remedies(), b.report.remedies());
    EXPECT_EQ(a.report.objects_text(), b.report.objects_text());
    ASSERT_EQ(a.dataset.size(), b.dataset.size());
    for (int64_t i = 0; i < a.dataset.size(); ++i) {
      EXPECT_EQ(a.dataset.path(i), b.dataset.path(i));
      EXPECT_EQ(a.dataset.image_size(i), b.dataset.image_size(i));
      EXPECT_TRUE(std::ranges::equal(a.dataset.labels(i), b.dataset.labels(i)));
      for (size_t box = 0; box < a.dataset.labels(i).size(); ++box) {
        EXPECT_TRUE(std::ranges::equal(a.dataset.outlines(i).of(box),
                                       b.dataset.outlines(i).of(box)));
      }
    }
  }
  void expect_files_content(const std::vector<IndexedDataset>& found) const {
    ASSERT_EQ(found.size(), 2u);
    expect_same(found[0], scan(Split::kTrain));
    expect_same(found[1], scan(Split::kVal));
  }

  const TemporaryFolder folder_;
  configs::DataConfig config_;
  const std::unique_ptr<SharedFile> file_ = SharedFile::make("index");
  std::string problem_;
  // Counts in all processes how often the files were examined.
  std::atomic<int>* const reads_ =
      new (mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<int>(0);
};

TEST_F(SharedIndexes, OneOfSeveralProcessesExaminesTheFiles) {
  const uint64_t digest = scan(Split::kTrain).dataset.digest();
  std::vector<std::unique_ptr<ForkedChild>> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(std::make_unique<ForkedChild>(
        [&] { return read()[0].dataset.digest() == digest ? 0 : 1; }));
  }
  for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
  EXPECT_EQ(*reads_, 1);
  expect_files_content(read());
  EXPECT_EQ(*reads_, 1);
  EXPECT_EQ(problem_, "");
}

TEST_F(SharedIndexes, ThePathsAndBoxesAreNotCopied) {
  const std::vector<IndexedDataset> first = read();
  const std::vector<IndexedDataset> second = read();
  const BoxLabel* const box = first[1].dataset.labels(1).data();
  const BoxLabel* const same = second[1].dataset.labels(1).data();
  // Two mappings of one page: the offset inside it is the same.
  EXPECT_NE(box, same);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(box) % 4096,
            reinterpret_cast<uintptr_t>(same) % 4096);
}

TEST_F(SharedIndexes, APartOfASharedDataSetCanBeKept) {
  std::vector<IndexedDataset> found = read();
  std::vector<IndexedDataset> own = scan_both();
  found[0].dataset.keep({0, 3, 7});
  own[0].dataset.keep({0, 3, 7});
  expect_same(found[0], own[0]);
}

TEST_F(SharedIndexes, AProcessKilledWhileItReadsIsReplaced) {
  ForkedChild child([this] {
    SharedIndex::read(
        file_->descriptor(), "both",
        [this] {
          ++*reads_;
          pause();
          return scan_both();
        },
        problem_);
    return 0;
  });
  while (*reads_ == 0) usleep(1000);
  ForkedChild next([this] { return read().size() == 2 ? 0 : 1; });
  usleep(50'000);
  EXPECT_EQ(*reads_, 1) << "the next process waits";
  child.kill();
  EXPECT_EQ(next.wait(), 0);
  EXPECT_EQ(*reads_, 2);
  expect_files_content(read());
  EXPECT_EQ(*reads_, 2);
}

TEST_F(SharedIndexes, DataThatCannotBeReadIsAnErrorOfEachProcess) {
  const auto fails = [this] {
    SharedIndex::read(
        file_->descriptor(), "both",
        []() -> std::vector<IndexedDataset> {
          throw Error("data", "no image", "");
        },
        problem_);
  };
  EXPECT_THROW(fails(), Error);
  EXPECT_THROW(fails(), Error);
  expect_files_content(read());
}

TEST_F(SharedIndexes, FilesThatChangeLaterChangeNothing) {
  const uint64_t before = read()[0].dataset.digest();
  folder_.write("labels/train/103.txt", "0 .5 .5 .1 .1\n");
  EXPECT_NE(scan(Split::kTrain).dataset.digest(), before);
  EXPECT_EQ(read()[0].dataset.digest(), before);
}

TEST_F(SharedIndexes, AnotherRequestIsReadFromTheFiles) {
  read();
  expect_files_content(read("other"));
  EXPECT_EQ(*reads_, 2);
}

TEST_F(SharedIndexes, ImagesInPacksAreReadByEachProcess) {
  PackingRequest request;
  request.output = folder_.path() / "packs";
  pack_data(config_, request);
  config_ = configs::load_data_config(request.output);
  for (int i = 1; i <= 2; ++i) {
    expect_files_content(read());
    EXPECT_EQ(*reads_, i);
  }
  EXPECT_EQ(problem_, "");
}

// The limit of a file's size takes the place of memory that has run out.
TEST_F(SharedIndexes, WithoutMemoryEachProcessHasItsOwn) {
  {
    const FileSizeLimit limit(1000);
    expect_files_content(read());
  }
  EXPECT_THAT(problem_,
              HasSubstr("memory to share the index cannot be had (File too "
                        "large)"));
  problem_ = "";
  expect_files_content(read());
  EXPECT_EQ(*reads_, 2);
  EXPECT_EQ(problem_, "") << "said once";
}

TEST_F(SharedIndexes, WithoutASharedFileNothingIsShared) {
  for (int i = 1; i <= 2; ++i) {
    expect_files_content(SharedIndex::read(
        -1, "both", [this] { return scan_both(); }, problem_));
    EXPECT_EQ(*reads_, i);
  }
  EXPECT_EQ(problem_, "");
}

}  // namespace
}  // namespace headroom::labels
