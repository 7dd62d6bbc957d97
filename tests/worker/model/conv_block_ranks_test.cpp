// Batch-norm groups that span ranks: the ranks are threads.
#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "parallel/base/layer_exchange.h"
#include "tests/worker/model/conv_block_fixture.h"
#include "worker/model/conv_block.h"

namespace headroom::model {
namespace {

// Adds up the values of all threads in rank order.
class SharedSums {
 public:
  explicit SharedSums(size_t num_ranks)
      : barrier_(static_cast<std::ptrdiff_t>(num_ranks)), values_(num_ranks) {}

  void sum(size_t rank, std::span<double> values) {
    values_[rank].assign(values.begin(), values.end());
    barrier_.arrive_and_wait();
    for (size_t i = 0; i < values.size(); ++i) {
      double total = 0;
      for (const std::vector<double>& from : values_) total += from.at(i);
      values[i] = total;
    }
    barrier_.arrive_and_wait();
  }

 private:
  std::barrier<> barrier_;
  std::vector<std::vector<double>> values_;
};

class RankExchange final : public StatisticsExchange {
 public:
  RankExchange(SharedSums* shared, size_t rank)
      : shared_(shared), rank_(rank) {}
  void sum(std::span<double> values) override {
    sizes.push_back(values.size());
    shared_->sum(rank_, values);
  }
  void sum_tensor(const at::Tensor& values) override {
    sum({values.mutable_data_ptr<double>(),
         static_cast<size_t>(values.numel())});
  }
  std::vector<size_t> sizes;

 private:
  SharedSums* shared_;
  size_t rank_;
};

struct RankResult {
  at::Tensor out, dx, dweight, dnorm_weight, dnorm_bias, batch_norm_sums;
  std::vector<size_t> exchanges;
};

// Rank r holds samples [cuts[r], cuts[r + 1]) of the whole batch.
std::vector<RankResult> run_ranks(const BlockCase& block,
                                  const BlockTensors& whole,
                                  const std::vector<int64_t>& cuts) {
  const size_t num_ranks = cuts.size() - 1;
  SharedSums shared(num_ranks);
  std::vector<RankResult> results(num_ranks);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      BlockTensors t = copied(whole, block.scalar_type);
      t.x = leaf(whole.x.slice(0, cuts[rank], cuts[rank + 1]));
      RankExchange exchange(&shared, rank);
      StepContext context = training_context(block);
      context.exchange = &exchange;
      context.batch_norm_sums =
          at::zeros({2 * block.channels_out}, at::kDouble);
      for (BatchNormGroup& group : context.groups) {
        const auto local = [&](int64_t sample) {
          return std::clamp(sample, cuts[rank], cuts[rank + 1]) - cuts[rank];
        };
        group.local_begin = local(group.local_begin);
        group.local_end = local(group.local_end);
        group.counts_here = rank == 0;
      }
      RankResult& result = results[rank];
      result.out = conv_block(arguments_of(block, t), context);
      result.out.backward(whole.dout.slice(0, cuts[rank], cuts[rank + 1]));
      result.dx = t.x.grad();
      result.dweight = t.weight.grad();
      result.dnorm_weight = t.norm_weight.grad();
      result.dnorm_bias = t.norm_bias.grad();
      result.batch_norm_sums = context.batch_norm_sums;
      result.exchanges = exchange.sizes;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

void expect_equal_to_one_process(const BlockCase& block,
                                 const std::vector<int64_t>& cuts) {
  at::set_num_threads(1);
  BlockTensors whole = random_tensors(block, 21);
  const std::vector<RankResult> ranks = run_ranks(block, whole, cuts);

  StepContext context = training_context(block);
  context.batch_norm_sums = at::zeros({2 * block.channels_out}, at::kDouble);
  const at::Tensor out = conv_block(arguments_of(block, whole), context);
  out.backward(whole.dout);

  std::vector<at::Tensor> outs, dxs;
  RankResult total = ranks[0];
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    outs.push_back(ranks[rank].out);
    dxs.push_back(ranks[rank].dx);
    if (rank == 0) continue;
    total.dweight = total.dweight + ranks[rank].dweight;
    total.dnorm_weight = total.dnorm_weight + ranks[rank].dnorm_weight;
    total.dnorm_bias = total.dnorm_bias + ranks[rank].dnorm_bias;
    total.batch_norm_sums = total.batch_norm_sums + ranks[rank].batch_norm_sums;
  }
  constexpr double kTolerance = 1e-12;
  EXPECT_LE(relative_error(at::cat(outs), out), kTolerance);
  EXPECT_LE(relative_error(at::cat(dxs), whole.x.grad()), kTolerance);
  EXPECT_LE(relative_error(total.dweight, whole.weight.grad()), kTolerance);
  EXPECT_LE(relative_error(total.dnorm_weight, whole.norm_weight.grad()),
            kTolerance);
  EXPECT_LE(relative_error(total.dnorm_bias, whole.norm_bias.grad()),
            kTolerance);
  EXPECT_LE(relative_error(total.batch_norm_sums, context.batch_norm_sums),
            kTolerance);
  // A rank makes one exchange in forward and one in backward, for all groups
  // together.
  const size_t size = block.group_sizes.size() * 2 * block.channels_out;
  for (const RankResult& rank : ranks)
    EXPECT_EQ(rank.exchanges, (std::vector<size_t>{size, size}));
}

TEST(ConvBlockRanks, AGroupMaySpanRanksUnevenly) {
  expect_equal_to_one_process({3, 16, 3, 2, 1, 9, 9, {8}}, {0, 3, 8});
}

TEST(ConvBlockRanks, GroupsMaySpanSomeRanksOnly) {
  expect_equal_to_one_process({3, 17, 3, 1, 1, 5, 6, {2, 4, 3}}, {0, 4, 5, 9});
}

TEST(ConvBlockRanks, PointwiseConvolutionsToo) {
  expect_equal_to_one_process({16, 32, 1, 1, 0, 5, 6, {4, 4}}, {0, 2, 8});
}

TEST(ConvBlockRanks, ARankWithoutSamplesTakesPart) {
  const BlockCase block{3, 16, 3, 2, 1, 8, 9, {2, 3}};
  expect_equal_to_one_process(block, {0, 5, 5});
  const BlockTensors whole = random_tensors(block, 21);
  const RankResult idle = run_ranks(block, whole, {0, 5, 5}).at(1);
  EXPECT_EQ(idle.out.sizes(), (std::vector<int64_t>{0, 16, 4, 5}));
  EXPECT_EQ(idle.dx.sizes(), (std::vector<int64_t>{0, 3, 8, 9}));
  EXPECT_TRUE(at::equal(idle.dweight, at::zeros_like(idle.dweight)));
  EXPECT_TRUE(at::equal(idle.dnorm_bias, at::zeros_like(idle.dnorm_bias)));
}

}  // namespace
}  // namespace headroom::model
