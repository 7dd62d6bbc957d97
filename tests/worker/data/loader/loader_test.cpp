#include "worker/data/loader/loader.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <new>
#include <opencv2/core.hpp>
#include <set>
#include <thread>
#include <utility>

#include "parallel/base/check.h"
#include "tests/support/error_text.h"
#include "tests/worker/data/data_files.h"
#include "tests/worker/data/encoders.h"
#include "tests/worker/data/loader/loader_fixture.h"

namespace headroom::loader {
namespace {

bool same_row(const loss::LabelRow& a, const loss::LabelRow& b) {
  return a.image == b.image && a.class_index == b.class_index && a.cx == b.cx &&
         a.cy == b.cy && a.w == b.w && a.h == b.h;
}

void expect_same(const Batch& a, const Batch& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.samples, b.samples);
  EXPECT_EQ(a.faults, b.faults);
  EXPECT_EQ(a.local_begin, b.local_begin);
  EXPECT_EQ(a.global_size, b.global_size);
  EXPECT_TRUE(a.images.equal(b.images)) << "step " << a.step;
  ASSERT_EQ(a.labels.size(), b.labels.size());
  EXPECT_TRUE(
      std::equal(a.labels.begin(), a.labels.end(), b.labels.begin(), same_row));
  ASSERT_EQ(a.geometry.size(), b.geometry.size());
  for (size_t i = 0; i < a.geometry.size(); ++i) {
    EXPECT_EQ(a.geometry[i].ratio, b.geometry[i].ratio);
    EXPECT_EQ(a.geometry[i].pad_x, b.geometry[i].pad_x);
  }
}

// The batches are those of `whole` from number `first` on.
void expect_same(const std::vector<Batch>& part,
                 const std::vector<Batch>& whole, size_t first = 0) {
  for (size_t i = 0; i < part.size(); ++i) {
    expect_same(part[i], whole[first + i]);
  }
}

class LoaderTest : public LoaderFixture {
 protected:
  // Returns the options with `threads` threads and, if `bytes` is given,
  // another memory limit.
  static LoaderOptions with_threads(LoaderOptions options, int64_t threads,
                                    int64_t bytes = 0) {
    options.num_threads = threads;
    if (bytes > 0) options.host_memory_limit_bytes = bytes;
    return options;
  }
  static LoaderOptions of_rank(LoaderOptions options, int rank, int ranks) {
    options.data_parallel_size = ranks;
    options.data_parallel_rank = rank;
    return options;
  }
  // Each of `ranks` ranks makes an equal part of the rows.
  static LoaderOptions of_rows(LoaderOptions options, int64_t rank,
                               int64_t ranks) {
    options.own_rows = [rank, ranks](int64_t height) {
      return plan::SampleRange{height / ranks * rank,
                               height / ranks * (rank + 1)};
    };
    return options;
  }
};

constexpr LoaderMode kModes[] = {
    LoaderMode::kTrainMosaic, LoaderMode::kTrainRect, LoaderMode::kValidation};

TEST_F(LoaderTest, ThreadsAndMemoryChangeNothing) {
  for (const LoaderMode mode : kModes) {
    const std::vector<Batch> reference = take(options(mode), 6);
    for (const int64_t threads : {0, 1, 5}) {
      for (const int64_t bytes : {int64_t{1}, int64_t{1} << 30}) {
        expect_same(take(with_threads(options(mode), threads, bytes), 6),
                    reference);
      }
    }
  }
}

// Two loaders, as in two processes, share the images; one of them has more
// threads. The first round decodes, the second one finds all images.
TEST_F(LoaderTest, SharedImagesChangeNothing) {
  const std::unique_ptr<SharedFile> file = SharedFile::make("images");
  for (const LoaderMode mode :
       {LoaderMode::kTrainMosaic, LoaderMode::kTrainRect}) {
    const std::vector<Batch> reference = take(options(mode), 12);
    std::string problem;
    LoaderOptions sharing = options(mode);
    sharing.shared_images = SharedImages::open(
        file->descriptor(), shared_content(sharing), 1 << 20, problem);
    ASSERT_NE(sharing.shared_images, nullptr) << problem;
    for (const int64_t threads : {1, 5}) {
      expect_same(take(with_threads(sharing, threads), 12), reference);
    }
    EXPECT_GT(sharing.shared_images->taken_bytes(), 0);
    LoaderOptions another = sharing;
    another.host_memory_limit_bytes = 1 << 20;
    EXPECT_NE(shared_content(another).key, shared_content(sharing).key);
  }
}

// Windows of images that are larger than the network's input.
TEST_F(LoaderTest, RandomCropsFollowFromTheSampleAlone) {
  LoaderOptions crops = options();
  crops.image_height = crops.image_width = 32;
  const std::vector<Batch> shrunk = take(crops, 6);
  crops.random_crop = true;
  const std::vector<Batch> reference = take(crops, 6);
  EXPECT_FALSE(reference[0].images.equal(shrunk[0].images));
  for (const int64_t threads : {1, 5}) {
    expect_same(take(with_threads(crops, threads, threads), 6), reference);
  }
  LoaderOptions resumed = crops;
  resumed.first_step = 4;
  expect_same(take(resumed, 1), reference, 4);
  for (const int64_t rank : {0, 1}) {  // rows of the same images
    const Batch batch = take(of_rows(crops, rank, 2), 1)[0];
    EXPECT_TRUE(batch.images.equal(
        reference[0].images.slice(1, 16 * rank, 16 * (rank + 1))));
    EXPECT_EQ(batch.labels.size(), reference[0].labels.size());
  }
}

// All five bands of a file show the same picture. They are still equal in the
// batch, whatever the size of the batch is.
TEST_F(LoaderTest, BandsGoThroughAlike) {
  constexpr int kBands = 5;
  TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() / "images");
  for (int i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i);
    const cv::Mat one = test_bands(50 + 7 * i, 90, 1, i);
    cv::Mat all;
    cv::merge(std::vector<cv::Mat>(kBands, one), all);
    write_tiff(folder.path() / "images" / (name + ".tif"), all);
    folder.write("labels/" + name + ".txt", "1 .5 .5 .4 .4\n");
  }
  labels::IndexOptions index;
  index.limits.bands = kBands;
  dataset_ = indexed_images(folder, "images", index);
  for (const bool multi_scale : {false, true}) {
    for (const LoaderMode mode : kModes) {
      LoaderOptions bands = options(mode);
      bands.bands = kBands;
      bands.multi_scale = multi_scale && mode == LoaderMode::kTrainMosaic;
      bands.random_crop = !multi_scale;
      bands.image_height = bands.image_width = 64;
      const std::vector<Batch> reference = take(bands, 2);
      expect_same(take(with_threads(bands, 4), 2), reference);
      for (const Batch& batch : reference) {
        const at::Tensor& images = batch.images;
        EXPECT_TRUE(batch.faults.empty());
        ASSERT_EQ(images.size(3), kBands);
        EXPECT_TRUE(images.eq(images.narrow(3, 0, 1)).all().item<bool>());
      }
    }
  }
}

// Batches of 16 bits are the same for any threads, ranks, rows and first step.
TEST_F(LoaderTest, SixteenBitsFollowFromTheSampleAlone) {
  for (const LoaderMode mode : kModes) {
    LoaderOptions deep = options(mode);
    deep.ranges = {{-100, 400}};
    deep.hyp.mixup = deep.hyp.flipud = 0.5;
    const std::vector<Batch> reference = take(deep, 4);
    ASSERT_EQ(reference[0].images.scalar_type(), at::kUInt16);
    // Pixels are 114 (gray) or the files' values, multiples of 500 / 65535.
    const at::Tensor levels = reference[0].images.to(at::kInt);
    EXPECT_GE(levels.min().item<int>(), 100 * 65535 / 500);
    EXPECT_LE(levels.max().item<int>(), 355 * 65535 / 500 + 1);
    expect_same(take(with_threads(deep, 5, 5), 4), reference);
    if (mode == LoaderMode::kValidation) continue;
    const int64_t rows = reference[0].images.size(1);
    EXPECT_TRUE(take(of_rows(deep, 1, 2), 1)[0].images.equal(
        reference[0].images.slice(1, rows / 2, rows)));
    deep.first_step = 3;
    expect_same(take(deep, 1), reference, 3);
  }
}

TEST_F(LoaderTest, ThreadsPasteTheSameObjects) {
  for (int i = 0; i < kImages; ++i) {
    folder_.write("labels/train/" + std::to_string(100 + i) + ".txt",
                  "1 .1 .1 .3 .1 .2 .3\n0 .6 .5 .7 .5 .7 .7\n");
  }
  labels::IndexOptions index;
  index.keep_outlines = true;
  dataset_ = indexed_images(folder_, "images", index);
  ASSERT_EQ(dataset_.num_polygons(), 2 * kImages);
  LoaderOptions pasting = options();
  const std::vector<Batch> plain = take(pasting, 6);
  pasting.hyp.copy_paste = 0.5;
  const std::vector<Batch> reference = take(pasting, 6);
  EXPECT_FALSE(plain[0].images.equal(reference[0].images));
  for (const int64_t threads : {1, 5}) {
    expect_same(take(with_threads(pasting, threads), 6), reference);
  }
}

// Sizes follow from the seed and the step, for any ranks, threads and first
// step.
TEST_F(LoaderTest, BatchesHaveTheSizeOfTheirStep) {
  const std::vector<Batch> plain = take(options(), 12);
  LoaderOptions scaled = options();
  scaled.multi_scale = true;
  const std::vector<Batch> whole = take(scaled, 12);
  std::set<std::pair<int64_t, int64_t>> sizes;
  for (size_t step = 0; step < whole.size(); ++step) {
    const Batch& batch = whole[step];
    sizes.insert({batch.image_height, batch.image_width});
    EXPECT_EQ(batch.images.size(1), batch.image_height);
    EXPECT_EQ(batch.images.size(2), batch.image_width);
    EXPECT_EQ(batch.samples, plain[step].samples);
    ASSERT_EQ(batch.labels.size(), plain[step].labels.size());
    EXPECT_TRUE(std::equal(batch.labels.begin(), batch.labels.end(),
                           plain[step].labels.begin(), same_row));
    // The batch is resized as by LibTorch, except for the rounding to bytes.
    const at::Tensor expected = at::upsample_bilinear2d(
        plain[step].images.permute({0, 3, 1, 2}).to(at::kFloat),
        {batch.image_height, batch.image_width}, /*align_corners=*/false);
    const at::Tensor distance =
        (expected - batch.images.permute({0, 3, 1, 2}).to(at::kFloat)).abs();
    EXPECT_LT(distance.max().item<float>(), 1) << step;
  }
  // 64 x 96: the longer side is 64, 96 or 128.
  EXPECT_EQ(sizes, (std::set<std::pair<int64_t, int64_t>>{
                       {64, 64}, {64, 96}, {96, 128}}));

  LoaderOptions late = scaled;
  late.first_step = 5;
  late.num_threads = 1;
  expect_same(take(late, 7), whole, 5);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<Batch> parts = take(of_rank(scaled, rank, 2), 12);
    for (size_t step = 0; step < whole.size(); ++step) {
      EXPECT_TRUE(parts[step].images.equal(whole[step].images.narrow(
          0, parts[step].local_begin, parts[step].images.size(0))));
    }
  }
  LoaderOptions other = scaled;
  other.seed = 18;
  const std::vector<Batch> others = take(other, 12);
  EXPECT_FALSE(std::equal(whole.begin(), whole.end(), others.begin(),
                          [](const Batch& a, const Batch& b) {
                            return a.image_width == b.image_width;
                          }));
}

class LoaderProgram : public LoaderTest {
 protected:
  LoaderOptions with_program(LoaderOptions options,
                             const std::string& command) const {
    options.program = {.command = command, .num_classes = 3, .most_boxes = 12};
    return options;
  }
  static constexpr const char* kProgram =
      HEADROOM_SOURCE_DIR "/tests/support/augment.sh";
};

TEST_F(LoaderProgram, ThreadsRanksAndRowsChangeNothing) {
  for (const LoaderMode mode :
       {LoaderMode::kTrainMosaic, LoaderMode::kTrainRect}) {
    const std::vector<Batch> plain = take(options(mode), 3);
    const LoaderOptions changed = with_program(options(mode), kProgram);
    const std::vector<Batch> reference = take(changed, 3);
    EXPECT_FALSE(reference[0].images.equal(plain[0].images));
    EXPECT_LT(reference[0].labels.size(), plain[0].labels.size());
    for (const int64_t threads : {1, 5}) {
      expect_same(take(with_threads(changed, threads), 3), reference);
    }
    LoaderOptions late = changed;
    late.first_step = 2;
    expect_same(take(late, 1), reference, 2);
    for (const int rank : {0, 1}) {
      const Batch part = take(of_rank(changed, rank, 2), 1)[0];
      EXPECT_TRUE(part.images.equal(reference[0].images.narrow(
          0, part.local_begin, part.images.size(0))));
      const Batch rows = take(of_rows(changed, rank, 2), 1)[0];
      const int64_t half = reference[0].images.size(1) / 2;
      EXPECT_TRUE(
          rows.images.equal(reference[0].images.narrow(1, rank * half, half)));
      EXPECT_EQ(rows.labels.size(), reference[0].labels.size());
    }
  }
}

// A mirrored box at the left edge is clipped again when it comes back.
TEST_F(LoaderProgram, OneThatChangesNothingChangesNothing) {
  constexpr double kEdge = 1.001e-3 / 64;  // a thousandth of a pixel
  LoaderOptions scaled = options();
  scaled.multi_scale = true;
  LoaderOptions deep = options();
  deep.ranges = {{-100, 400}};
  for (const LoaderOptions& plain : {scaled, deep}) {
    const std::vector<Batch> reference = take(plain, 3);
    const std::vector<Batch> batches = take(with_program(plain, "cat"), 3);
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_TRUE(batches[i].images.equal(reference[i].images));
      ASSERT_EQ(batches[i].labels.size(), reference[i].labels.size());
      for (size_t k = 0; k < batches[i].labels.size(); ++k) {
        const loss::LabelRow& a = batches[i].labels[k];
        const loss::LabelRow& b = reference[i].labels[k];
        EXPECT_EQ(a.class_index, b.class_index);
        EXPECT_NEAR(a.cx, b.cx, kEdge);
        EXPECT_NEAR(a.cy, b.cy, kEdge);
        EXPECT_NEAR(a.w, b.w, kEdge);
        EXPECT_NEAR(a.h, b.h, kEdge);
      }
    }
  }
}

TEST_F(LoaderProgram, ItsFailureEndsTheLoader) {
  EXPECT_THAT(
      error_text([&] { take(with_program(options(), "false"), 1); },
                 ExitCode::kData),
      ::testing::HasSubstr("--augment-program false ended: false failed with "
                           "code 1"));
  Loader unfinished(with_program(options(), "sleep 30"));
}

TEST_F(LoaderTest, RanksTogetherMakeTheGlobalBatch) {
  for (const LoaderMode mode :
       {LoaderMode::kTrainMosaic, LoaderMode::kTrainRect}) {
    const std::vector<Batch> whole = take(options(mode), 8);
    for (const int ranks : {2, 3, 5}) {
      std::vector<std::vector<Batch>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        parts.push_back(take(of_rank(options(mode), rank, ranks), 8));
      }
      for (size_t step = 0; step < whole.size(); ++step) {
        std::vector<at::Tensor> images;
        std::vector<int64_t> samples;
        size_t row = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const Batch& part = parts[rank][step];
          EXPECT_EQ(part.local_begin, static_cast<int64_t>(samples.size()));
          EXPECT_EQ(part.global_size, whole[step].global_size);
          EXPECT_EQ(sampling::samples_at(part.order, part.positions),
                    whole[step].samples);
          images.push_back(part.images);
          samples.insert(samples.end(), part.samples.begin(),
                         part.samples.end());
          for (loss::LabelRow label : part.labels) {
            label.image += part.local_begin;
            ASSERT_LT(row, whole[step].labels.size());
            EXPECT_TRUE(same_row(label, whole[step].labels[row]));
            ++row;
          }
        }
        EXPECT_TRUE(at::cat(images).equal(whole[step].images));
        EXPECT_EQ(samples, whole[step].samples);
        EXPECT_EQ(row, whole[step].labels.size());
      }
    }
  }
}

// Some images are of the network's size, some smaller, some larger.
TEST_F(LoaderTest, RanksThatShareImagesMakeTheirRowsOfTheSameBatch) {
  for (int i = 0; i < 4; ++i) {
    folder_.write("images/train/" + std::to_string(200 + i) + ".bmp",
                  encode_bmp(test_picture(i % 2 == 0 ? 96 : 64, 128, i)));
    folder_.write("labels/train/" + std::to_string(200 + i) + ".txt",
                  "1 .5 .5 .4 .4\n");
  }
  // This image is damaged after it was indexed, so it is gray on every rank.
  dataset_ = indexed_images(folder_, "images");
  folder_.write("images/train/201.bmp", "BM");
  for (const LoaderMode mode : kModes) {
    LoaderOptions whole = options(mode);
    whole.image_height = 96;
    whole.image_width = 128;
    whole.hyp.mosaic = 0.5;
    whole.hyp.flipud = 0.5;
    const int64_t count = mode == LoaderMode::kValidation ? 7 : 14;
    const std::vector<Batch> reference = take(whole, count);
    size_t faults = 0;
    for (const Batch& batch : reference) faults += batch.faults.size();
    EXPECT_GT(faults, 0u);
    constexpr int kRanks = 3;
    std::vector<std::vector<Batch>> parts;
    for (int rank = 0; rank < kRanks; ++rank) {
      LoaderOptions part = whole;
      // A rank has whole blocks of 32 rows. There are few blocks, so some ranks
      // may have none.
      part.own_rows = [rank](int64_t height) {
        const plan::SampleRange blocks =
            plan::share_of(height / 32, kRanks, rank);
        return plan::SampleRange{blocks.begin * 32, blocks.end * 32};
      };
      parts.push_back(take(part, count));
    }
    for (size_t i = 0; i < reference.size(); ++i) {
      std::vector<at::Tensor> rows;
      for (const std::vector<Batch>& part : parts) {
        rows.push_back(part[i].images);
        Batch as_whole = part[i];
        as_whole.images = reference[i].images;
        expect_same(as_whole, reference[i]);  // labels, geometry, faults
      }
      EXPECT_TRUE(at::cat(rows, 1).equal(reference[i].images)) << "batch " << i;
    }
  }
}

// All augmentations, with several numbers of threads and ranks.
TEST_F(LoaderTest, EveryAugmentationFollowsFromTheSampleAlone) {
  LoaderOptions one = options();
  one.hyp.mosaic = 0.8;
  one.hyp.mosaic9 = 0.5;
  one.hyp.mixup = 0.3;
  one.hyp.flipud = 0.5;
  one.hyp.blur = one.hyp.median_blur = one.hyp.gray = one.hyp.clahe = 0.4;
  one.num_threads = 1;
  const std::vector<Batch> reference = take(one, 8);
  const LoaderOptions many = with_threads(one, 4);
  expect_same(take(many, 8), reference);
  std::vector<std::vector<Batch>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(take(of_rank(many, rank, 2), 8));
  }
  for (size_t i = 0; i < reference.size(); ++i) {
    EXPECT_TRUE(at::cat({ranks[0][i].images, ranks[1][i].images})
                    .equal(reference[i].images))
        << "batch " << i;
  }
  EXPECT_FALSE(take(options(), 1)[0].images.equal(reference[0].images));
}

TEST_F(LoaderTest, TheLastEpochsHaveNoMosaics) {
  LoaderOptions closed = options();
  closed.mosaic_epochs = 1;
  LoaderOptions without = options();
  without.hyp.mosaic = 0;
  const std::vector<Batch> always = take(options(), 12);
  const std::vector<Batch> result = take(closed, 12);
  const std::vector<Batch> never = take(without, 12);
  for (size_t i = 0; i < result.size(); ++i) {
    expect_same(result[i], i < 6 ? always[i] : never[i]);
  }
  EXPECT_FALSE(always[6].images.equal(never[6].images));
}

TEST_F(LoaderTest, EpochsUseEachSampleOnceAndDiffer) {
  const std::vector<Batch> batches = take(options(), 12);
  std::vector<int64_t> first, second;
  for (const Batch& batch : batches) {
    auto& used = batch.epoch == 0 ? first : second;
    used.insert(used.end(), batch.samples.begin(), batch.samples.end());
  }
  EXPECT_EQ(batches[5].samples.size(), 3u);  // 23 = 5 x 4 + 3
  EXPECT_NE(first, second);
  for (auto* used : {&first, &second}) {
    std::sort(used->begin(), used->end());
    ASSERT_EQ(used->size(), static_cast<size_t>(kImages));
    for (int64_t i = 0; i < kImages; ++i) EXPECT_EQ((*used)[i], i);
  }
}

TEST_F(LoaderTest, ContinuesAtAnyStep) {
  const std::vector<Batch> whole = take(options(), 10);
  LoaderOptions later = options();
  later.first_step = 7;
  expect_same(take(later, 3), whole, 7);
}

TEST_F(LoaderTest, ValidationReadsEachImageOnceUnaugmented) {
  std::map<int64_t, int> times;
  for (int rank = 0; rank < 2; ++rank) {
    Loader loader(of_rank(options(LoaderMode::kValidation), rank, 2));
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      const Batch batch = loader.next();
      EXPECT_EQ(batch.local_begin, 0);
      EXPECT_EQ(batch.global_size, batch.images.size(0));
      size_t row = 0;
      for (size_t j = 0; j < batch.samples.size(); ++j) {
        const int64_t sample = batch.samples[j];
        const Batch::Geometry& geometry = batch.geometry[j];
        ++times[sample];
        EXPECT_EQ(geometry.height, dataset_.image_size(sample).height);
        // Labels return to their original positions, except for rounding.
        for (const labels::BoxLabel& label : dataset_.labels(sample)) {
          const loss::LabelRow& mapped = batch.labels.at(row++);
          EXPECT_EQ(mapped.image, static_cast<int64_t>(j));
          const double cx =
              (mapped.cx * static_cast<double>(batch.images.size(2)) -
               geometry.pad_x) /
              geometry.ratio;
          EXPECT_NEAR(cx, label.cx * static_cast<double>(geometry.width), 1);
        }
      }
      EXPECT_EQ(row, batch.labels.size());
    }
    EXPECT_THROW(loader.next(), CheckFailure);
  }
  EXPECT_EQ(times.size(), static_cast<size_t>(kImages));
  for (const auto& [sample, count] : times) EXPECT_EQ(count, 1) << sample;
}

TEST_F(LoaderTest, AnImageThatBecomesUnreadableStopsNothing) {
  folder_.write("images/train/104.bmp", "BM");
  const std::vector<Batch> batches = take(options(LoaderMode::kTrainRect), 6);
  int named = 0;
  for (const Batch& batch : batches) {
    for (const std::string& fault : batch.faults) {
      EXPECT_NE(fault.find("images/train/104.bmp: truncated BMP header"),
                std::string::npos);
      ++named;
    }
    const auto at =
        std::find(batch.samples.begin(), batch.samples.end(), int64_t{4});
    EXPECT_EQ(batch.faults.size(), at == batch.samples.end() ? 0u : 1u);
    for (const loss::LabelRow& row : batch.labels) {
      EXPECT_NE(row.image, at - batch.samples.begin());
    }
  }
  EXPECT_EQ(named, 1);
}

TEST_F(LoaderTest, TargetsAreAssignedPerMicroBatch) {
  LoaderOptions assigning = options();
  assigning.micro_batch_size = 2;
  assigning.assign = [](const std::vector<loss::LabelRow>& labels,
                        int64_t height, int64_t width) {
    EXPECT_EQ(height, 64);
    EXPECT_EQ(width, 96);
    for (const loss::LabelRow& row : labels) {
      EXPECT_GE(row.image, 0);
      EXPECT_LT(row.image, 2);
    }
    return std::vector<loss::LevelTargets>(labels.size());
  };
  for (const Batch& batch : take(assigning, 6)) {
    ASSERT_EQ(batch.targets.size(), (batch.samples.size() + 1) / 2);
    size_t rows = 0;
    for (const auto& part : batch.targets) rows += part.size();
    EXPECT_EQ(rows, batch.labels.size());
  }
}

TEST_F(LoaderTest, ARankWithoutSamplesGetsAnEmptyBatch) {
  LoaderOptions last = of_rank(options(), 1, 2);
  last.global_batch_size = 22;  // the last batch has one sample
  std::atomic<int> calls = 0;
  last.micro_batch_size = 22;
  last.assign = [&](const std::vector<loss::LabelRow>&, int64_t, int64_t) {
    ++calls;
    return std::vector<loss::LevelTargets>(3);
  };
  const std::vector<Batch> batches = take(last, 3);
  EXPECT_EQ(batches[1].images.sizes(), (at::IntArrayRef{0, 64, 96, 3}));
  EXPECT_EQ(batches[1].global_size, 1);
  EXPECT_EQ(batches[1].targets.size(), 1u);
  EXPECT_EQ(batches[2].samples.size(), 11u);
  EXPECT_GE(calls, 3);
}

TEST_F(LoaderTest, WaitsWhereMemoryRunsOutAndReportsItOnce) {
  for (const bool of_host : {false, true}) {
    LoaderOptions short_of_memory = options();
    short_of_memory.num_threads = 1;
    std::atomic<int> failures = 5, told = 0;
    short_of_memory.assign = [&](const std::vector<loss::LabelRow>& labels,
                                 int64_t, int64_t) {
      if (failures > 0 && failures-- > 0) {
        if (of_host) throw std::bad_alloc();
        TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory for the test");
      }
      return std::vector<loss::LevelTargets>(labels.size());
    };
    short_of_memory.hooks.out_of_memory = [&](int64_t step,
                                              const std::string& why) {
      EXPECT_EQ(step, 0);
      EXPECT_FALSE(why.empty());
      ++told;
    };
    const std::vector<Batch> batches = take(short_of_memory, 2);
    EXPECT_EQ(batches[0].step, 0);
    EXPECT_EQ(batches[1].step, 1);
    EXPECT_EQ(told, 1);
    for (const Batch& batch : batches) {
      EXPECT_EQ(batch.targets.size(), batch.micro_batches.size());
    }
  }
}

TEST_F(LoaderTest, AnExceptionOfAThreadReachesNext) {
  LoaderOptions failing = options();
  failing.assign = [](const std::vector<loss::LabelRow>&, int64_t,
                      int64_t) -> std::vector<loss::LevelTargets> {
    throw std::runtime_error("assignment failed");
  };
  Loader loader(failing);
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_THROW(loader.next(), std::runtime_error);
}

TEST_F(LoaderTest, EndsQuicklyWithWorkInHand) {
  for (int round = 0; round < 10; ++round) {
    LoaderOptions many = options();
    many.num_threads = 4;
    auto loader = std::make_unique<Loader>(many);
    if (round % 2 == 0) loader->next();
    const auto start = std::chrono::steady_clock::now();
    loader.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start,
              std::chrono::seconds(2));
  }
}

TEST_F(LoaderTest, PrefetchesNoMoreThanItsQueue) {
  std::atomic<int> finished = 0;
  LoaderOptions counting = options();
  counting.host_memory_limit_bytes = 1;
  counting.assign = [&](const std::vector<loss::LabelRow>&, int64_t, int64_t) {
    ++finished;
    return std::vector<loss::LevelTargets>();
  };
  counting.micro_batch_size = 4;
  Loader loader(counting);
  EXPECT_EQ(loader.queue_depth(), 1);
  EXPECT_EQ(loader.num_threads(), 1);
  for (int i = 1; i <= 3; ++i) {
    loader.next();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_LE(finished, i + 1);
  }
}

}  // namespace
}  // namespace headroom::loader
