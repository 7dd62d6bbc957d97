// NMS of predictions on a device equals NMS on the host.
#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/test_device/test_device_api.h"
#include "worker/metrics/nms.h"

namespace headroom::metrics {
namespace {

constexpr int64_t kImages = 3, kRows = 500, kClasses = 4;

at::Tensor predictions() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(3);
  at::Tensor decoded = at::rand({kImages, kRows, 5 + kClasses});
  decoded.narrow(2, 0, 4).mul_(100);
  return decoded;
}

// Returns the peak bytes on the host in `host_bytes`.
std::vector<std::vector<Detection>> detections(const at::Tensor& decoded,
                                               double threshold,
                                               int64_t* host_bytes = nullptr) {
  NmsOptions options;
  options.confidence_threshold = threshold;
  activations::MemoryMeter& host = activations::CountingAllocator::instance();
  host.reset_peak();
  const int64_t before = host.live_bytes();
  auto found = non_maximum_suppression(decoded, options);
  if (host_bytes != nullptr) *host_bytes = host.peak_bytes() - before;
  return found;
}

void expect_same(const std::vector<std::vector<Detection>>& a,
                 const std::vector<std::vector<Detection>>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t image = 0; image < a.size(); ++image) {
    ASSERT_EQ(a[image].size(), b[image].size()) << image;
    for (size_t i = 0; i < a[image].size(); ++i) {
      EXPECT_EQ(a[image][i].confidence, b[image][i].confidence);
      EXPECT_EQ(a[image][i].class_index, b[image][i].class_index);
      EXPECT_EQ(a[image][i].box.x1, b[image][i].box.x1);
    }
  }
}

TEST(DeviceNms, OnlyRowsThatCanBeDetectionsAreCopied) {
  activations::CountingAllocator::install();
  const c10::Device device = test_compute_device().device();
  const at::Tensor decoded = predictions();
  const at::Tensor there = decoded.to(device);
  int64_t bytes = 0;
  expect_same(detections(there, 0.9, &bytes), detections(decoded, 0.9));
  EXPECT_LT(bytes, static_cast<int64_t>(decoded.nbytes()) / 4);
}

TEST(DeviceNms, WhereMostRowsAreLeftAllAreCopied) {
  const c10::Device device = test_compute_device().device();
  const at::Tensor decoded = predictions();
  expect_same(detections(decoded.to(device), 0.1), detections(decoded, 0.1));
  expect_same(detections(decoded.to(device), 1), detections(decoded, 1));
  expect_same(detections(decoded.to(device, at::kDouble), 0.9),
              detections(decoded, 0.9));
}

}  // namespace
}  // namespace headroom::metrics
