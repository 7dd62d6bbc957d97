// Tests which convolutions are folded: those of 16-bit maps on a device.
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "tests/support/test_device/test_device_api.h"
#include "worker/kernels/cpu/folded_convolution.h"

namespace headroom::kernels {
namespace {

TEST(FoldedConvolution, IsForMapsOf16BitsOnADevice) {
  const auto folds = [](const at::Device& place, at::ScalarType type,
                        int64_t channels, int64_t rows, int64_t kernel) {
    const at::TensorOptions options = at::TensorOptions(place).dtype(type);
    return can_be_folded(at::empty({2, channels, rows, 16}, options),
                         at::empty({5, channels, kernel, kernel}, options),
                         {2, 2, 2, 1});
  };
  const at::Device device = test_compute_device().device();
  EXPECT_TRUE(folds(device, at::kBFloat16, 3, 12, 6));
  EXPECT_TRUE(folds(device, at::kHalf, 4, 12, 4));
  EXPECT_FALSE(folds(at::kCPU, at::kBFloat16, 3, 12, 6));
  EXPECT_FALSE(folds(device, at::kFloat, 3, 12, 6));
  EXPECT_FALSE(folds(device, at::kBFloat16, 5, 12, 6));
  EXPECT_FALSE(folds(device, at::kBFloat16, 3, 13, 6));
  EXPECT_FALSE(folds(device, at::kBFloat16, 3, 12, 3));
}

}  // namespace
}  // namespace headroom::kernels
