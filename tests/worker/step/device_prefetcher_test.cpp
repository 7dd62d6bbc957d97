// Tests the buffer on the device, the copy stream, and the pinned memory from
// which the stream copies. On the test device, a stream other than the current
// one does its work only when something waits for it.
#include "worker/step/device_prefetcher.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "parallel/devices/compute_device.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_device_api.h"

namespace headroom::step {
namespace {

constexpr int64_t kHeight = 8, kWidth = 4, kBands = 3;

// Every byte encodes its batch and its image.
loader::Batch batch_of(const loader::AllocateImages& allocate, int64_t samples,
                       int first, int64_t height = kHeight,
                       at::ScalarType type = at::kByte) {
  loader::Batch batch;
  batch.images = loader::make_image_tensor(samples, height, kWidth, kBands,
                                           allocate, type);
  const int64_t bytes =
      height * kWidth * kBands * static_cast<int64_t>(c10::elementSize(type));
  for (int64_t i = 0; i < samples; ++i) {
    std::memset(
        static_cast<uint8_t*>(batch.images.mutable_data_ptr()) + i * bytes,
        first + static_cast<int>(i), static_cast<size_t>(bytes));
  }
  batch.micro_batches = {{0, samples / 2}, {samples / 2, samples}};
  return batch;
}

class DevicePrefetcherTest : public ::testing::Test {
 protected:
  void expect_input(DevicePrefetcher& feed, const loader::Batch& batch,
                    const std::vector<plan::SampleRange>& parts, size_t part) {
    SCOPED_TRACE(part);
    const at::Tensor input =
        feed.input(batch, parts, part, device_.options(at::kFloat));
    EXPECT_EQ(input.device(), device_.device());
    const at::Tensor expected = network_input(
        batch.images.narrow(0, parts[part].begin, parts[part].size()),
        at::kFloat);
    EXPECT_TRUE(input.cpu().equal(expected));
  }
  void expect_input(DevicePrefetcher& feed, const loader::Batch& batch,
                    size_t part) {
    expect_input(feed, batch, batch.micro_batches, part);
  }
  int64_t num_copies() const {
    return TestStreams::instance().delayed() - before_;
  }

  const devices::ComputeDevice device_ = test_compute_device();
  const loader::AllocateImages allocate_ = page_locked_images(device_);
  const int64_t before_ = TestStreams::instance().delayed();
};

TEST_F(DevicePrefetcherTest, TheNextBatchIsCopiedAheadOnce) {
  const loader::Batch first = batch_of(allocate_, 4, 10),
                      second = batch_of(allocate_, 4, 20);
  const loader::Batch* following = nullptr;
  DevicePrefetcher feed(device_, [&] { return following; });
  expect_input(feed, first, 0);
  EXPECT_EQ(num_copies(), 2) << "the first, and the second is on its way";
  following = &second;
  expect_input(feed, first, 1);
  EXPECT_EQ(num_copies(), 3) << "the next batch's first";
  following = nullptr;
  expect_input(feed, second, 0);
  EXPECT_EQ(num_copies(), 4);
  expect_input(feed, second, 1);
  EXPECT_EQ(num_copies(), 4);
}

TEST_F(DevicePrefetcherTest, AStepIsTriedAgainWithSmallerMicroBatches) {
  const loader::Batch batch = batch_of(allocate_, 4, 10),
                      next = batch_of(allocate_, 4, 20);
  DevicePrefetcher feed(device_, [&] { return &next; });
  expect_input(feed, batch, 0);
  expect_input(feed, batch, 1);
  const std::vector<plan::SampleRange> smaller = {
      {0, 1}, {1, 2}, {2, 3}, {3, 4}};
  for (size_t part = 0; part < smaller.size(); ++part) {
    expect_input(feed, batch, smaller, part);
  }
  expect_input(feed, next, 0);
}

TEST_F(DevicePrefetcherTest, ABufferGrowsOnlyWhereABatchNeedsIt) {
  TestDeviceMemory& memory = TestDeviceMemory::of(0);
  const int64_t before = memory.live_bytes();
  const loader::Batch small = batch_of(allocate_, 4, 10),
                      large = batch_of(allocate_, 4, 20, 4 * kHeight);
  {
    DevicePrefetcher feed(device_, [&] { return &large; });
    expect_input(feed, small, 0);
    expect_input(feed, small, 1);
    EXPECT_EQ(memory.live_bytes() - before, small.images.numel() / 2);
    expect_input(feed, large, 0);
    EXPECT_EQ(memory.live_bytes() - before, large.images.numel() / 2);
    expect_input(feed, small, 0);
  }
  EXPECT_EQ(memory.live_bytes(), before);
}

TEST_F(DevicePrefetcherTest, ImagesOfSixteenBitsTakeTwiceTheBytes) {
  TestDeviceMemory& memory = TestDeviceMemory::of(0);
  const int64_t before = memory.live_bytes();
  const loader::Batch deep = batch_of(allocate_, 4, 10, kHeight, at::kUInt16);
  DevicePrefetcher feed(device_, {});
  expect_input(feed, deep, 0);
  expect_input(feed, deep, 1);
  EXPECT_EQ(memory.live_bytes() - before, 2 * deep.images.numel() / 2);
}

TEST_F(DevicePrefetcherTest, ImagesStayUntilTheyAreCopied) {
  DevicePrefetcher feed(device_, {});
  std::optional<loader::Batch> batch = batch_of(allocate_, 4, 10);
  const void* const memory = batch->images.const_data_ptr();
  expect_input(feed, *batch, 0);  // the second part is being copied
  batch.reset();
  const loader::Batch other = batch_of(allocate_, 4, 30);
  EXPECT_NE(other.images.const_data_ptr(), memory);
}

TEST_F(DevicePrefetcherTest, ImagesOnTheDeviceAndOnTheCpuAreNotCopied) {
  loader::Batch batch = batch_of({}, 4, 10);
  const at::Tensor expected =
      network_input(batch.images.narrow(0, 2, 2), at::kFloat);
  DevicePrefetcher on_cpu(devices::ComputeDevice(), {});
  EXPECT_TRUE(
      on_cpu.input(batch, batch.micro_batches, 1, at::kFloat).equal(expected));
  batch.images = device_.upload(batch.images);
  DevicePrefetcher feed(device_, {});
  EXPECT_TRUE(
      feed.input(batch, batch.micro_batches, 1, device_.options(at::kFloat))
          .cpu()
          .equal(expected));
  EXPECT_EQ(num_copies(), 0);
}

TEST_F(DevicePrefetcherTest, BuffersAreUsedAgain) {
  std::shared_ptr<void> last;
  {
    devices::PageLockedBuffers buffers(*device_.api());
    const void* const first = buffers.take(100).get();
    EXPECT_EQ(buffers.take(80).get(), first);
    EXPECT_EQ(buffers.locked_bytes(), 100);
    const auto held = buffers.take(100);
    last = buffers.take(60);
    EXPECT_NE(last, held);
    EXPECT_EQ(buffers.locked_bytes(), 160);
    last.reset();
    last = buffers.take(90);  // replaces the buffer of 60 bytes
    EXPECT_EQ(buffers.locked_bytes(), 190);
  }
  std::memset(last.get(), 1, 90);  // the memory outlives `buffers`
}

void expect_one_launch(const devices::ComputeDevice& device,
                       const at::Tensor& images) {
  const at::Tensor there = device.upload(images);
  for (const at::ScalarType type :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t begin : {0, 1}) {
      SCOPED_TRACE(testing::Message()
                   << c10::toString(type) << " from image " << begin);
      take_launches();
      const at::Tensor input =
          network_input(there.narrow(0, begin, 4), device.options(type));
      const std::map<std::string, int64_t> launches = take_launches();
      EXPECT_EQ(launches,
                (std::map<std::string, int64_t>{{"scale images", 1}}));
      EXPECT_TRUE(input.is_contiguous(at::MemoryFormat::ChannelsLast));
      EXPECT_TRUE(
          input.cpu().equal(network_input(images.narrow(0, begin, 4), type)));
    }
  }
}

// One kernel gives the CPU's bits for any type, also if a part of a batch
// begins at no multiple of a load, or ends within a load.
TEST(NetworkInput, IsOneLaunchOfTheCpusBits) {
  const devices::ComputeDevice device = test_compute_device();
  // These images include every level of 16 bits.
  const at::Tensor deep = at::arange(5 * 65536, at::kInt)
                              .remainder(65536)
                              .to(at::kUInt16)
                              .view({5, 128, 128, 4});
  for (const at::Tensor& images :
       {at::randint(0, 256, {5, 7, 9, 3}, at::kByte), deep,
        deep.slice(1, 0, 7).slice(2, 0, 9).slice(3, 0, 3).contiguous()}) {
    expect_one_launch(device, images);
  }
}

// The largest level becomes 1, and levels keep their order.
TEST(NetworkInput, DividesSixteenBitsByTheirLargest) {
  const at::Tensor levels = at::arange(65536, at::kInt).to(at::kUInt16);
  const at::Tensor input =
      network_input(levels.view({1, 128, 128, 4}), at::kFloat)
          .permute({0, 2, 3, 1})
          .reshape({-1});
  EXPECT_TRUE(
      input.equal(at::arange(65536, at::kInt).to(at::kFloat).div(65535)));
}

}  // namespace
}  // namespace headroom::step
