// If a device renders the batches, the network's input equals bit for bit that
// of batches whose pixels the loader made.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "parallel/base/device_scratch.h"
#include "tests/support/test_device/test_device_api.h"
#include "tests/worker/data/loader/loader_fixture.h"
#include "worker/step/device_prefetcher.h"

namespace headroom::loader {
namespace {

class RenderedBatches : public LoaderFixture {
 protected:
  static constexpr int64_t kBatches = 8;

  void expect_as_on_the_cpu(LoaderOptions options) {
    options.global_batch_size = 6;
    options.micro_batch_size = 5;  // more than the device renders at a time
    const std::vector<Batch> made = take(options, kBatches);
    options.packs_samples = true;
    options.allocate_images = step::page_locked_images(device_);
    Loader loader(options);
    step::DevicePrefetcher feed(device_, [&] { return loader.made_ahead(); });
    for (const Batch& expected : made) {
      const Batch batch = loader.next();
      EXPECT_EQ(batch.images.sizes(), expected.images.sizes());
      EXPECT_EQ(static_cast<int64_t>(batch.packed_bytes.size()),
                expected.images.size(0));
      ASSERT_EQ(batch.labels.size(), expected.labels.size());
      for (size_t part = 0; part < batch.micro_batches.size(); ++part) {
        const plan::SampleRange range = batch.micro_batches[part];
        const at::Tensor input = feed.input(batch, batch.micro_batches, part,
                                            device_.options(at::kFloat));
        EXPECT_TRUE(input.cpu().equal(step::network_input(
            expected.images.narrow(0, range.begin - batch.local_begin,
                                   range.size()),
            at::kFloat)))
            << "step " << batch.step << " part " << part;
      }
      count(batch);
    }
  }

  void count(const Batch& batch) {
    const int64_t image = batch.images[0].numel() *
                          static_cast<int64_t>(batch.images.element_size());
    for (const int64_t bytes : batch.packed_bytes) {
      ++samples_;
      // A sample whose pixels are already finished has about as many bytes as
      // an image.
      finished_ += bytes >= image && bytes < image + 400;
    }
  }

  const devices::ComputeDevice device_ = test_compute_device();
  int64_t samples_ = 0, finished_ = 0;
};

TEST_F(RenderedBatches, OfTheDefaultHyperparameters) {
  expect_as_on_the_cpu(options());
  EXPECT_LT(finished_, samples_ / 2);
}

// Some samples have more tiles than a slot has room for.
TEST_F(RenderedBatches, OfAllThatADeviceDoes) {
  LoaderOptions asked = options();
  asked.hyp.degrees = 10;
  asked.hyp.shear = 3;
  asked.hyp.perspective = 0.0005;
  asked.hyp.mixup = asked.hyp.flipud = asked.hyp.mosaic9 = 0.5;
  asked.hyp.mosaic = 0.8;
  expect_as_on_the_cpu(asked);
  EXPECT_GT(finished_, 0);
  EXPECT_LT(finished_, samples_);
}

// Samples that the device cannot render are rendered by the CPU, in the same
// batches.
TEST_F(RenderedBatches, WithTheStepsOfTheCpu) {
  LoaderOptions asked = options();
  asked.hyp.blur = asked.hyp.median_blur = asked.hyp.gray = asked.hyp.clahe =
      0.15;
  expect_as_on_the_cpu(asked);
  EXPECT_GT(finished_, 0);
  EXPECT_LT(finished_, samples_);
}

// The range spreads the files' 8 bits over 16 bits, so that both bytes of each
// level are sent.
TEST_F(RenderedBatches, OfSixteenBits) {
  for (const bool multi_scale : {false, true}) {
    LoaderOptions asked = options();
    asked.ranges = {{-7, 300}};
    asked.multi_scale = multi_scale;
    asked.hyp.mixup = asked.hyp.flipud = 0.5;
    asked.hyp.blur = 0.1;
    ASSERT_EQ(take(asked, 1)[0].images.scalar_type(), at::kUInt16);
    expect_as_on_the_cpu(asked);
  }
}

TEST_F(RenderedBatches, OfOtherSizes) {
  LoaderOptions asked = options();
  asked.multi_scale = true;
  expect_as_on_the_cpu(asked);
}

TEST_F(RenderedBatches, OfSimilarShapesAndOfRows) {
  expect_as_on_the_cpu(options(LoaderMode::kTrainRect));
  LoaderOptions asked = options();
  asked.own_rows = [](int64_t height) { return plan::SampleRange{32, height}; };
  expect_as_on_the_cpu(asked);
}

}  // namespace
}  // namespace headroom::loader
