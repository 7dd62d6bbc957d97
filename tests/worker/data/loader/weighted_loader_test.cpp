// Tests the loader when samples are drawn by weight (--image-weights).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/worker/data/loader/loader_fixture.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::loader {
namespace {

class WeightedLoader : public LoaderFixture {
 protected:
  // A loader whose samples have these weights.
  LoaderOptions weighted(const std::vector<double>& weights) const {
    LoaderOptions result = options();
    result.weights =
        std::make_shared<sampling::WeightedSampler>(result.seed, weights);
    return result;
  }
};

// If samples are drawn by weight, a batch does not depend on the threads, the
// ranks or how far ahead it is made.
TEST_F(WeightedLoader, OfDrawnSamplesRanksThreadsAndMemoryChangeNothing) {
  std::vector<double> weights(kImages, 0);
  weights[3] = 1;
  weights[8] = 2;
  weights[20] = 0.5;
  const LoaderOptions drawn = weighted(weights);
  const std::vector<Batch> reference = take(drawn, 9);
  for (const int64_t threads : {1, 5}) {
    LoaderOptions changed = drawn;
    changed.num_threads = threads;
    changed.host_memory_limit_bytes = threads == 1 ? 1 : 0;
    const std::vector<Batch> batches = take(changed, 9);
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_EQ(batches[i].samples, reference[i].samples);
      EXPECT_TRUE(batches[i].images.equal(reference[i].images)) << i;
    }
  }
  LoaderOptions second = drawn;
  second.data_parallel_size = 2;
  second.data_parallel_rank = 1;
  second.micro_batch_size = 2;
  const std::vector<Batch> part = take(second, 6);
  for (size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(sampling::samples_at(part[i].order, part[i].positions),
              reference[i].samples);
    const int64_t begin = part[i].local_begin;
    ASSERT_EQ(part[i].images.size(0), part[i].global_size - begin);
    EXPECT_TRUE(part[i].images.equal(
        reference[i].images.narrow(0, begin, part[i].images.size(0))));
  }
  // An image that is drawn again in an epoch is augmented differently.
  int64_t seen = 0;
  for (const Batch& batch : reference) {
    EXPECT_EQ(batch.samples,
              sampling::samples_at(batch.order, batch.positions));
    for (size_t a = 0; a < batch.samples.size(); ++a) {
      const int64_t sample = batch.samples[a];
      EXPECT_TRUE(sample == 3 || sample == 8 || sample == 20) << sample;
      for (size_t b = a + 1; b < batch.samples.size(); ++b) {
        if (batch.samples[b] != sample) continue;
        ++seen;
        EXPECT_FALSE(batch.images[static_cast<int64_t>(a)].equal(
            batch.images[static_cast<int64_t>(b)]));
      }
    }
  }
  EXPECT_GT(seen, 5);
}

// A mosaic's partners are also drawn by weight; here only one image can be
// drawn.
TEST_F(WeightedLoader, MosaicsAreOfDrawnSamples) {
  std::vector<double> weights(kImages, 0);
  int64_t image = 0;
  while (dataset_.labels(image).size() != 1) ++image;
  weights[static_cast<size_t>(image)] = 1;
  const int64_t only = dataset_.labels(image)[0].class_index;
  LoaderOptions drawn = weighted(weights);
  drawn.hyp.mosaic = drawn.hyp.mixup = 1;
  int64_t boxes = 0;
  for (const Batch& batch : take(drawn, 6)) {
    for (const loss::LabelRow& row : batch.labels) {
      EXPECT_EQ(row.class_index, only);
      ++boxes;
    }
  }
  EXPECT_GT(boxes, 23 * 2) << "of mosaics";
}

// The weights of an epoch become known only when it begins.
TEST_F(WeightedLoader, AnEpochToComeWaitsForItsWeights) {
  std::vector<double> first(kImages, 0), second(kImages, 0);
  first[3] = second[8] = 1;
  LoaderOptions drawn = weighted(first);
  drawn.weighted_epochs = 1;
  Loader loader(drawn);
  const int64_t steps = loader.batches_per_epoch();
  for (int64_t i = 0; i < steps; ++i) {
    EXPECT_EQ(loader.next().samples.front(), 3);
  }
  std::atomic<bool> came = false;
  std::thread waiting([&] {
    const Batch batch = loader.next();
    came = true;
    EXPECT_EQ(batch.step, steps);
    EXPECT_EQ(batch.samples.front(), 8);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(came);
  loader.draw_from(
      std::make_shared<sampling::WeightedSampler>(drawn.seed, second), 2);
  waiting.join();
  EXPECT_TRUE(came);
}

}  // namespace
}  // namespace headroom::loader
