// The place on the device, the stream beside it and the memory they copy from.
// The test device's other streams do nothing until somebody waits for them.
#include "worker/step/device_prefetcher.h"

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

// Every byte tells which batch and which image it is of.
loader::Batch batch_of(const loader::AllocateImages& allocate, int64_t samples,
                       int first, int64_t height = kHeight) {
  loader::Batch batch;
  batch.images =
      loader::make_image_tensor(samples, height, kWidth, kBands, allocate);
  const int64_t bytes = height * kWidth * kBands;
  for (int64_t i = 0; i < samples; ++i) {
    std::memset(batch.images.data_ptr<uint8_t>() + i * bytes,
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

TEST_F(DevicePrefetcherTest, WhatFollowsIsSentAheadOnce) {
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

TEST_F(DevicePrefetcherTest, OnlyWhoNeedsALargerPlaceMakesIt) {
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

TEST_F(DevicePrefetcherTest, ImagesStayUntilTheyAreCopied) {
  DevicePrefetcher feed(device_, {});
  std::optional<loader::Batch> batch = batch_of(allocate_, 4, 10);
  const void* const memory = batch->images.const_data_ptr();
  expect_input(feed, *batch, 0);  // the second part is on its way
  batch.reset();
  const loader::Batch other = batch_of(allocate_, 4, 30);
  EXPECT_NE(other.images.const_data_ptr(), memory);
}

TEST_F(DevicePrefetcherTest, ImagesThatAreThereAlreadyAndTheCpuTakeNoCopy) {
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
    last = buffers.take(90);  // in the place of that of 60
    EXPECT_EQ(buffers.locked_bytes(), 190);
  }
  std::memset(last.get(), 1, 90);  // it outlives the buffers' own object
}

// One kernel, of any type: the CPU's bits, where a batch's part begins at no
// multiple of a load, and where it ends within one.
TEST(NetworkInput, IsOneLaunchOfTheCpusBits) {
  const devices::ComputeDevice device = test_compute_device();
  const at::Tensor images = at::randint(0, 256, {5, 7, 9, 3}, at::kByte);
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

}  // namespace
}  // namespace headroom::step
