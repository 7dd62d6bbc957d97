#include "parallel/zero/row_gather.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "parallel/activations/counting_allocator.h"
#include "parallel/zero/row_memory.h"
#include "tests/support/run_ranks.h"

namespace headroom::zero {
namespace {

TEST(RowMemoryTest, ComesAndGoesUnderATensorThatStays) {
  activations::CountingAllocator::install();
  const at::Tensor row = at::ones({1000}, at::kDouble);
  at::Tensor window = at::empty({0}, at::kDouble);
  window.set_(row.storage(), 10, {20}, {1});
  const int64_t before =
      activations::CountingAllocator::instance().live_bytes();
  release_memory(row);
  EXPECT_FALSE(has_memory(row));
  EXPECT_EQ(before - activations::CountingAllocator::instance().live_bytes(),
            8000);
  restore_memory(row);
  row.fill_(3);
  EXPECT_EQ(window.sum().item<double>(), 60);
}

// Autograd keeps the weight, not its values: they may be away in between.
TEST(RowMemoryTest, WhatAutogradSavedSeesTheValuesAgain) {
  const at::Tensor row = at::full({4}, 2, at::kDouble);
  at::Tensor weight = at::empty({0}, at::kDouble);
  weight.set_(row.storage(), 0, {4}, {1});
  const at::Tensor x = at::ones({4}, at::kDouble).set_requires_grad(true);
  const at::Tensor y = (x * weight).sum();
  release_memory(row);
  restore_memory(row);
  row.fill_(5);
  y.backward();
  EXPECT_EQ(x.grad().sum().item<double>(), 20);
}

class RowGatherTest : public testing::TestWithParam<int> {};

TEST_P(RowGatherTest, RowsAreWholeOnlyWhileTheyAreNeeded) {
  run_ranks(GetParam(), [](int, collectives::Communicator& ranks) {
    const ShardMap map({10, 7, 31}, ranks.size(), 2);
    std::vector<at::Tensor> rows, expected;
    for (int64_t row = 0; row < map.num_rows(); ++row) {
      rows.push_back(at::arange(map.padded_row_size(row), at::kDouble) +
                     100.0 * static_cast<double>(row));
      expected.push_back(rows.back().clone());
    }
    RowGather gather(map, rows, ranks);
    EXPECT_EQ(gather.shard().numel(), map.shard_size());
    for (int64_t row = 0; row < map.num_rows(); ++row) {
      EXPECT_FALSE(gather.is_whole(row));
      gather.gather(row);
      EXPECT_TRUE(at::equal(rows[row], expected[row]));
      gather.release(row);
      EXPECT_FALSE(gather.is_whole(row));
    }
    gather.shard().add_(1);
    gather.gather(1);
    EXPECT_TRUE(at::equal(rows[1], expected[1] + 1));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RowGatherTest, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace headroom::zero
