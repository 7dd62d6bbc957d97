#include "parallel/zero/layer_gather.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "parallel/activations/counting_allocator.h"
#include "tests/support/run_ranks.h"

namespace headroom::zero {
namespace {

TEST(LayerMemoryTest, TheMemoryOfATensorIsAllocatedAndFreed) {
  activations::CountingAllocator::install();
  const at::Tensor layer = at::ones({1000}, at::kDouble);
  at::Tensor window = at::empty({0}, at::kDouble);
  window.set_(layer.storage(), 10, {20}, {1});
  const int64_t before =
      activations::CountingAllocator::instance().live_bytes();
  release_memory(layer);
  EXPECT_FALSE(has_memory(layer));
  EXPECT_EQ(before - activations::CountingAllocator::instance().live_bytes(),
            8000);
  restore_memory(layer);
  layer.fill_(3);
  EXPECT_EQ(window.sum().item<double>(), 60);
}

// Autograd keeps the weight as a tensor. The values in its storage may be freed
// after forward, and are restored before backward.
TEST(LayerMemoryTest, TensorsSavedByAutogradSeeTheValuesAgain) {
  const at::Tensor layer = at::full({4}, 2, at::kDouble);
  at::Tensor weight = at::empty({0}, at::kDouble);
  weight.set_(layer.storage(), 0, {4}, {1});
  const at::Tensor x = at::ones({4}, at::kDouble).set_requires_grad(true);
  const at::Tensor y = (x * weight).sum();
  release_memory(layer);
  restore_memory(layer);
  layer.fill_(5);
  y.backward();
  EXPECT_EQ(x.grad().sum().item<double>(), 20);
}

class LayerGatherTest : public testing::TestWithParam<int> {};

TEST_P(LayerGatherTest, LayersAreWholeOnlyWhileTheyAreNeeded) {
  run_ranks(GetParam(), [](int, collectives::Communicator& ranks) {
    const ShardMap map({10, 7, 31}, ranks.size(), 2);
    std::vector<at::Tensor> layers, expected;
    for (int64_t layer = 0; layer < map.num_layers(); ++layer) {
      layers.push_back(at::arange(map.padded_layer_size(layer), at::kDouble) +
                       100.0 * static_cast<double>(layer));
      expected.push_back(layers.back().clone());
    }
    LayerGather gather(map, layers, ranks);
    EXPECT_EQ(gather.shard().numel(), map.shard_size());
    for (int64_t layer = 0; layer < map.num_layers(); ++layer) {
      EXPECT_FALSE(gather.is_whole(layer));
      gather.gather(layer);
      EXPECT_TRUE(at::equal(layers[layer], expected[layer]));
      gather.release(layer);
      EXPECT_FALSE(gather.is_whole(layer));
    }
    gather.shard().add_(1);
    gather.gather(1);
    EXPECT_TRUE(at::equal(layers[1], expected[1] + 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, LayerGatherTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace headroom::zero
