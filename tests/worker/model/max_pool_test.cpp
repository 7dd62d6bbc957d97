// Max pooling with the kernels of a device, whose source text is compiled for
// the CPU here. Values, gradients and the bytes kept for backward are compared
// with LibTorch's.
#include "worker/model/max_pool.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "parallel/activations/saved_tensor_policy.h"
#include "tests/support/test_device/emulated_on_cpu.h"
#include "tests/worker/model/split_rows.h"
#include "worker/model/resampling.h"

namespace headroom::model {
namespace {

// Keeps the saved tensors and lists them.
class Kept final : public activations::SavedTensorPolicy {
 public:
  std::function<at::Tensor()> pack(const at::Tensor& tensor) override {
    tensors.push_back(tensor);
    return [tensor] { return tensor; };
  }
  std::vector<at::Tensor> tensors;
};

// The map has many equal values, so that only the order decides which of them
// is chosen.
at::Tensor map_of_ties(at::ScalarType type) {
  at::manual_seed(6);
  return map_leaf((4 * at::rand({2, 8, 11, 9}, at::kDouble)).floor().to(type));
}

struct Result {
  at::Tensor out, dx;
  std::vector<at::Tensor> kept;
};

// Runs a chain of pools forward, and backward with a gradient that differs from
// cell to cell.
Result result_of(const std::vector<int64_t>& windows, at::ScalarType type,
                 bool on_device) {
  activations::install_saved_tensor_policies();
  std::optional<EmulatedOnCpu> device;
  if (on_device) device.emplace();
  const at::Tensor x = map_of_ties(type);
  Kept kept;
  at::Tensor out;
  {
    const activations::SavedTensorPolicyGuard guard(&kept);
    out = chained_pools(x, windows, StepContext());
  }
  at::manual_seed(7);
  out.backward(at::randn_like(out));
  return {out.detach(), x.grad(), kept.tensors};
}

TEST(DeviceMaxPool, EqualsLibTorchs) {
  for (const std::vector<int64_t>& windows :
       std::vector<std::vector<int64_t>>{{5, 5, 5}, {3, 9}, {15}, {17}}) {
    SCOPED_TRACE(windows.front());
    const Result own = result_of(windows, at::kDouble, true);
    const Result libtorchs = result_of(windows, at::kDouble, false);
    EXPECT_TRUE(own.out.equal(libtorchs.out));
    EXPECT_TRUE(own.dx.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_LE(largest_difference(own.dx, libtorchs.dx), 1e-13);
  }
}

TEST(DeviceMaxPool, TakesMapsOf16Bits) {
  const Result own = result_of({5}, at::kBFloat16, true);
  const Result in_double = result_of({5}, at::kDouble, false);
  EXPECT_TRUE(own.out.to(at::kDouble).equal(in_double.out));
  EXPECT_LE(largest_difference(own.dx.to(at::kDouble), in_double.dx),
            in_double.dx.abs().max().item<double>() / 64);
}

TEST(DeviceMaxPool, KeepsAByteForEachElement) {
  const Result own = result_of({5, 5}, at::kFloat, true);
  ASSERT_EQ(own.kept.size(), 2U);
  for (const at::Tensor& kept : own.kept) {
    EXPECT_EQ(kept.scalar_type(), at::kByte);
    EXPECT_EQ(kept.sizes(), own.dx.sizes());
  }
  // LibTorch also keeps the input if a byte cannot number the cells.
  EXPECT_EQ(result_of({17}, at::kFloat, true).kept.size(), 2U);
}

TEST(DeviceMaxPool, KeepsNothingWithoutAGradient) {
  const EmulatedOnCpu device;
  const at::Tensor x = map_of_ties(at::kFloat);
  const at::Tensor expected = at::max_pool2d(x, {5, 5}, {1, 1}, {2, 2});
  const at::NoGradGuard no_gradient;
  const at::Tensor out = max_pool(x, 5, 2);
  EXPECT_FALSE(out.requires_grad());
  EXPECT_TRUE(out.equal(expected));
}

}  // namespace
}  // namespace headroom::model
