#include "worker/data/loader/loader_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "parallel/base/check.h"
#include "tests/worker/data/data_files.h"

namespace headroom::loader {
namespace {

class Plan : public ::testing::Test {
 protected:
  Plan() : dataset_(indexed_data_set(folder_, 23)) {}

  LoaderOptions options(LoaderMode mode, int size = 1, int rank = 0) const {
    LoaderOptions result;
    result.dataset = &dataset_;
    result.mode = mode;
    result.image_height = 64;
    result.image_width = 96;
    result.global_batch_size = 4;
    result.data_parallel_size = size;
    result.data_parallel_rank = rank;
    return result;
  }

  TemporaryFolder folder_;
  labels::Dataset dataset_;
};

TEST_F(Plan, ValidationGivesEachBatchToOneRank) {
  const LoaderPlan one(options(LoaderMode::kValidation));
  ASSERT_EQ(one.batches_per_epoch(), 6);
  for (const int ranks : {1, 2, 4, 7}) {
    std::map<int64_t, int> times;
    int64_t batches = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const LoaderPlan plan(options(LoaderMode::kValidation, ranks, rank));
      batches += plan.batches_per_epoch();
      for (int64_t i = 0; i < plan.batches_per_epoch(); ++i) {
        const BatchPlan batch = plan.batch(i);
        const BatchPlan same = one.batch(batch.step);
        EXPECT_EQ(batch.samples, same.samples);
        EXPECT_EQ(batch.height, same.height);
        EXPECT_EQ(batch.width, same.width);
        EXPECT_EQ(batch.global_size, batch.part.local.size());
        for (const int64_t sample : batch.samples) ++times[sample];
      }
    }
    EXPECT_EQ(batches, 6);
    EXPECT_EQ(times.size(), 23u);
    for (const auto& [sample, count] : times) EXPECT_EQ(count, 1) << sample;
  }
}

TEST_F(Plan, RectTrainingSharesABatchsShape) {
  for (int64_t index = 0; index < 12; ++index) {
    std::vector<int64_t> samples;
    const BatchPlan whole =
        LoaderPlan(options(LoaderMode::kTrainRect)).batch(index);
    for (int rank = 0; rank < 3; ++rank) {
      const BatchPlan part =
          LoaderPlan(options(LoaderMode::kTrainRect, 3, rank)).batch(index);
      EXPECT_EQ(part.height, whole.height);
      EXPECT_EQ(part.width, whole.width);
      samples.insert(samples.end(), part.samples.begin(), part.samples.end());
    }
    EXPECT_EQ(samples, whole.samples);
    EXPECT_EQ(whole.height % 32, 0);
  }
}

// The samples of a whole batch, as every rank once computed them.
std::vector<int64_t> samples_of_all_ranks(const LoaderOptions& options,
                                          int64_t step) {
  const int64_t n = options.dataset->size();
  const sampling::EpochStep at =
      sampling::epoch_step(step, n, options.global_batch_size);
  const sampling::Permutation shuffled(options.seed, at.epoch, n);
  RectOptions rect;
  rect.batch_size = options.global_batch_size;
  rect.height = options.image_height;
  rect.width = options.image_width;
  const RectBatches batches =
      make_rect_batches(options.dataset->image_sizes(), rect);
  std::vector<int64_t> samples;
  for (int64_t i = at.positions.begin; i < at.positions.end; ++i) {
    samples.push_back(options.mode == LoaderMode::kTrainRect ? batches.order[i]
                      : options.weights ? options.weights->sample(at.epoch, i)
                                        : shuffled(i));
  }
  return samples;
}

TEST_F(Plan, TheRanksSamplesTogetherAreThoseOfTheWholeBatch) {
  std::mt19937 draws(20);
  const auto below = [&](int n) { return static_cast<int64_t>(draws() % n); };
  for (int round = 0; round < 300; ++round) {
    LoaderOptions one = options(below(3) == 0 ? LoaderMode::kTrainRect
                                              : LoaderMode::kTrainMosaic);
    one.seed = draws();
    one.global_batch_size = 1 + below(30);
    one.first_step = below(50);  // also in the middle of an epoch
    one.data_parallel_size = static_cast<int>(1 + below(9));
    one.batch_norm_rule = {.size = 1 + below(8), .even = below(2) == 0};
    one.micro_batch_size =
        below(2) == 0 ? one.global_batch_size : 8 * (1 + below(3));
    if (plan::groups_error(one.cut())) continue;
    if (one.mode == LoaderMode::kTrainMosaic && below(2) == 0) {
      std::vector<double> weights(23);
      for (double& weight : weights) weight = static_cast<double>(below(4));
      weights[5] = 1;
      one.weights =
          std::make_shared<sampling::WeightedSampler>(one.seed, weights);
    }
    const int64_t index = below(20);
    const std::vector<int64_t> whole =
        samples_of_all_ranks(one, one.first_step + index);
    std::vector<int64_t> together;
    for (int rank = 0; rank < one.data_parallel_size; ++rank) {
      one.data_parallel_rank = rank;
      const BatchPlan batch = LoaderPlan(one).batch(index);
      EXPECT_EQ(batch.first_place - batch.positions.begin,
                std::ssize(together));
      together.insert(together.end(), batch.samples.begin(),
                      batch.samples.end());
      EXPECT_EQ(sampling::samples_at(batch.order, batch.positions), whole);
    }
    EXPECT_EQ(together, whole) << "round " << round;
  }
}

TEST_F(Plan, StartsAtAnyStep) {
  const LoaderPlan whole(options(LoaderMode::kTrainMosaic));
  LoaderOptions later_options = options(LoaderMode::kTrainMosaic);
  later_options.first_step = 9;
  const LoaderPlan later(later_options);
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(later.batch(i).step, 9 + i);
    EXPECT_EQ(later.batch(i).epoch, (9 + i) / 6);
    EXPECT_EQ(later.batch(i).samples, whole.batch(9 + i).samples);
  }
}

TEST_F(Plan, TheBudgetIsKept) {
  LoaderOptions wide = options(LoaderMode::kTrainMosaic);
  wide.image_height = wide.image_width = 640;
  wide.num_threads = 8;
  for (const int64_t megabytes : {1, 20, 100, 500, 4000}) {
    wide.host_memory_limit_bytes = megabytes << 20;
    const configs::LoaderBudget budget = LoaderPlan(wide).budget();
    EXPECT_GE(budget.num_threads, 1);
    EXPECT_LE(budget.num_threads, 8);
    EXPECT_GE(budget.queue_depth, 1);
    const int64_t batch = 4 * 640 * 640 * 3;
    const int64_t canvas = 4 * 640 * 640 * 3;
    if (megabytes >= 100) {
      EXPECT_LE(budget.queue_depth * batch + budget.cache_bytes +
                    budget.num_threads * canvas,
                wide.host_memory_limit_bytes);
    }
  }
  wide.host_memory_limit_bytes = 1 << 20;
  EXPECT_EQ(LoaderPlan(wide).budget().queue_depth, 1);
  EXPECT_EQ(LoaderPlan(wide).budget().num_threads, 1);
  EXPECT_EQ(LoaderPlan(wide).budget().cache_bytes, 0);
  wide.host_memory_limit_bytes = int64_t{4} << 30;
  EXPECT_EQ(LoaderPlan(wide).budget().num_threads, 8);
  EXPECT_GT(LoaderPlan(wide).budget().cache_bytes, 1 << 30);
}

TEST_F(Plan, RanksThatShareAnImageShareTheMemoryToo) {
  LoaderOptions large = options(LoaderMode::kTrainRect);
  large.image_height = 4000;
  large.image_width = 6016;
  large.global_batch_size = 1;
  const configs::LoaderBudget whole = LoaderPlan(large).budget();
  large.own_rows = [](int64_t height) {
    return plan::SampleRange{height / 4, height / 2};
  };
  const configs::LoaderBudget quarter = LoaderPlan(large).budget();
  const int64_t batch = int64_t{4000} * 6016 * 3;
  EXPECT_LE(quarter.queue_depth * (batch / 4) + quarter.cache_bytes,
            (int64_t{1} << 30) / 4);
  EXPECT_LT(quarter.cache_bytes, whole.cache_bytes);
  // If the user gives a limit, each rank may use the whole limit.
  large.host_memory_limit_bytes = int64_t{4} << 30;
  EXPECT_GT(LoaderPlan(large).budget().cache_bytes, whole.cache_bytes);
}

// A rank that needs a quarter of the rows needs far less memory to make them,
// for images of any size.
TEST_F(Plan, ThreadsOfARankWithSomeRowsNeedLess) {
  const TemporaryFolder folder;
  folder.write("images/1.bmp", encode_bmp(cv::Mat::zeros(1024, 1024, CV_8UC3)));
  folder.write("labels/1.txt", "0 .5 .5 .2 .2\n");
  const labels::Dataset dataset = indexed_images(folder, "images");
  constexpr int64_t kPicture = int64_t{1024} * 1024 * 3;
  for (const LoaderMode mode :
       {LoaderMode::kTrainRect, LoaderMode::kValidation}) {
    LoaderOptions split = options(mode);
    split.dataset = &dataset;
    split.image_height = split.image_width = 1024;
    split.global_batch_size = 1;
    split.num_threads = 8;
    split.hyp = {};  // scale 0.5 needs twice the rows
    split.host_memory_limit_bytes = 6 * kPicture;
    const auto threads = [&] { return LoaderPlan(split).budget().num_threads; };
    EXPECT_EQ(threads(), 1);
    // For validation, an image is padded by half a stride.
    split.own_rows = [](int64_t height) {
      return plan::SampleRange{0, height / 4};
    };
    EXPECT_EQ(threads(), mode == LoaderMode::kTrainRect ? 3 : 5);
    EXPECT_EQ(LoaderPlan(split).budget().queue_depth, 1);
    // Rotated pictures may need any row.
    split.hyp.degrees = 5;
    EXPECT_EQ(threads(), mode == LoaderMode::kTrainRect ? 2 : 5);
    // Resized images may need any row too.
    split.image_height = split.image_width = 512;
    EXPECT_EQ(threads(), 2);
  }
}

TEST_F(Plan, CopyPasteNeedsAMosaicOfOnePieceWhereLabelsArePolygons) {
  LoaderOptions asked = options(LoaderMode::kTrainMosaic);
  const int64_t without = LoaderPlan(asked).budget().thread_bytes;
  asked.hyp.copy_paste = 0.1;
  EXPECT_EQ(LoaderPlan(asked).budget().thread_bytes, without);  // no outlines
  folder_.write("labels/train/100.txt", "1 .1 .1 .5 .1 .3 .6\n");
  const labels::Dataset polygons = indexed_images(folder_, "images");
  EXPECT_EQ(polygons.num_polygons(), 1);
  asked.dataset = &polygons;
  EXPECT_EQ(LoaderPlan(asked).budget().thread_bytes, without + 3 * 4 * 64 * 96);
  // A mosaic of this size has more bytes than 31 bits can address.
  asked.image_height = asked.image_width = 13'440;
  EXPECT_THROW(LoaderPlan{asked}, Error);
  asked.hyp.copy_paste = 0;
  EXPECT_NO_THROW(LoaderPlan{asked});
}

TEST_F(Plan, OnlyWholeImagesOfMosaicsAreResized) {
  LoaderOptions scaled = options(LoaderMode::kTrainMosaic);
  const configs::LoaderBudget plain = LoaderPlan(scaled).budget();
  scaled.multi_scale = true;
  const configs::LoaderBudget budget = LoaderPlan(scaled).budget();
  EXPECT_EQ(budget.batch_bytes, plain.batch_bytes * (96 * 128) / (64 * 96));
  EXPECT_EQ(budget.thread_bytes, plain.thread_bytes);
  scaled.own_rows = [](int64_t height) {
    return plan::SampleRange{0, height / 2};
  };
  EXPECT_THROW(LoaderPlan{scaled}, CheckFailure);
  LoaderOptions rect = options(LoaderMode::kTrainRect);
  rect.multi_scale = true;
  EXPECT_THROW(LoaderPlan{rect}, CheckFailure);
}

TEST_F(Plan, SizesOffTheStrideAreAProgrammersError) {
  LoaderOptions odd = options(LoaderMode::kTrainMosaic);
  odd.image_width = 100;
  EXPECT_THROW(LoaderPlan{odd}, CheckFailure);
}

}  // namespace
}  // namespace headroom::loader
