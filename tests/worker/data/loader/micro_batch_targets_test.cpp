#include "worker/data/loader/loader_options.h"

#include <gtest/gtest.h>

#include "worker/data/loader/batch.h"

namespace headroom::loader {
namespace {

struct Call {
  std::vector<int64_t> images;
  int64_t height = 0, width = 0;
};

std::vector<Call> calls_for(int64_t images, std::vector<int64_t> rows,
                            std::vector<plan::SampleRange> micro_batches) {
  Batch batch;
  batch.local_begin = 8;
  batch.micro_batches = std::move(micro_batches);
  batch.images = make_image_tensor(images, 32, 96);
  batch.image_height = 64;
  batch.image_width = 96;
  for (const int64_t image : rows) batch.labels.push_back({image});
  std::vector<Call> calls;
  assign_micro_batches(batch, [&](const std::vector<loss::LabelRow>& labels,
                                  int64_t height, int64_t width) {
    Call call{{}, height, width};
    for (const loss::LabelRow& row : labels) call.images.push_back(row.image);
    calls.push_back(call);
    return std::vector<loss::LevelTargets>(3);
  });
  EXPECT_EQ(batch.targets.size(), calls.size());
  return calls;
}

TEST(MicroBatchTargets, CountImagesFromEachMicroBatch) {
  const auto calls =
      calls_for(5, {0, 0, 1, 3, 4, 4}, {{8, 10}, {10, 12}, {12, 13}, {13, 13}});
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_TRUE(calls[3].images.empty());
  EXPECT_EQ(calls[0].images, (std::vector<int64_t>{0, 0, 1}));
  EXPECT_EQ(calls[1].images, (std::vector<int64_t>{1}));
  EXPECT_EQ(calls[2].images, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(calls[0].height, 64) << "of whole images";
  EXPECT_EQ(calls[0].width, 96);
}

TEST(MicroBatchTargets, ARankWithoutSamplesHasOneEmptyMicroBatch) {
  const auto calls = calls_for(0, {}, {{8, 8}});
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_TRUE(calls[0].images.empty());
  EXPECT_EQ(calls[0].height, 64);
}

TEST(MicroBatchTargets, NothingToAssignWith) {
  Batch batch;
  batch.images = make_image_tensor(2, 8, 8);
  assign_micro_batches(batch, nullptr);
  EXPECT_TRUE(batch.targets.empty());
}

}  // namespace
}  // namespace headroom::loader
