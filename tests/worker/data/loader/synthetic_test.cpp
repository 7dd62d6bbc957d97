#include "worker/data/loader/synthetic.h"

#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

namespace headroom::loader {
namespace {

LoaderOptions options(int size = 1, int rank = 0) {
  LoaderOptions result;
  result.image_height = 32;
  result.image_width = 64;
  result.global_batch_size = 5;
  result.data_parallel_size = size;
  result.data_parallel_rank = rank;
  result.micro_batch_size = 2;
  result.seed = 4;
  result.assign = [](const std::vector<loss::LabelRow>& labels, int64_t,
                     int64_t) {
    return std::vector<loss::LevelTargets>(labels.size());
  };
  return result;
}

TEST(SyntheticInput, HoldsEightBoxesAnImage) {
  SyntheticInput input(options());
  const Batch batch = input.next();
  EXPECT_EQ(batch.images.sizes(), (at::IntArrayRef{5, 32, 64, 3}));
  EXPECT_EQ(batch.images.scalar_type(), at::kByte);
  EXPECT_EQ(batch.labels.size(), 40u);
  EXPECT_EQ(batch.targets.size(), 3u);
  EXPECT_EQ(batch.targets[0].size(), 16u);
  for (const loss::LabelRow& row : batch.labels) {
    EXPECT_GE(row.class_index, 0);
    EXPECT_LT(row.class_index, 80);
    EXPECT_GE(row.cx - row.w / 2, 0);
    EXPECT_LE(row.cy + row.h / 2, 1);
  }
  EXPECT_NE(batch.labels[0].cx, batch.labels[8].cx);
  EXPECT_FALSE(batch.images[0].equal(batch.images[1]));
}

TEST(SyntheticInput, RepeatsItselfAndCountsEpochs) {
  LoaderOptions late = options();
  late.first_step = 999;
  SyntheticInput input(late);
  EXPECT_EQ(input.batches_per_epoch(), 1000);
  const Batch first = input.next();
  const Batch second = input.next();
  EXPECT_EQ(first.step, 999);
  EXPECT_EQ(first.epoch, 0);
  EXPECT_EQ(second.step, 1000);
  EXPECT_EQ(second.epoch, 1);
  // The second batch is in the same memory: it is neither drawn nor copied
  // again.
  EXPECT_EQ(first.images.data_ptr(), second.images.data_ptr());
}

TEST(SyntheticInput, IsTheSameForAnyNumberOfRanks) {
  const Batch whole = SyntheticInput(options()).next();
  for (const int ranks : {2, 3, 7}) {
    std::vector<at::Tensor> images;
    std::vector<int64_t> samples;
    size_t row = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Batch part = SyntheticInput(options(ranks, rank)).next();
      EXPECT_EQ(part.local_begin, static_cast<int64_t>(samples.size()));
      EXPECT_EQ(part.global_size, 5);
      EXPECT_EQ(sampling::samples_at(part.order, part.positions),
                whole.samples);
      images.push_back(part.images);
      samples.insert(samples.end(), part.samples.begin(), part.samples.end());
      for (const loss::LabelRow& label : part.labels) {
        EXPECT_EQ(label.image + part.local_begin, whole.labels[row].image);
        EXPECT_EQ(label.cx, whole.labels[row].cx);
        ++row;
      }
    }
    EXPECT_TRUE(at::cat(images).equal(whole.images));
    EXPECT_EQ(samples, whole.samples);
    EXPECT_EQ(row, whole.labels.size());
  }
}

}  // namespace
}  // namespace headroom::loader
