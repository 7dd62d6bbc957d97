#include "parallel/data_parallel/gradient_reducer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <stdexcept>

#include "parallel/base/check.h"
#include "tests/support/run_ranks.h"

namespace headroom::data_parallel {
namespace {

constexpr int kLayers = 8;
constexpr int64_t kWidth = 64;  // 33 kB a layer: several buckets of 35 kB
constexpr int64_t kBucketBytes = 34 << 10;

// A chain of small dense layers with their flat buffer, the same on every rank.
struct Network {
  std::vector<at::Tensor> weights;
  std::vector<at::Tensor> biases;
  std::optional<FlatBuffer> flat_buffer;

  // If `ranks` is not null, the gradients are in memory of this communicator.
  explicit Network(collectives::Communicator* ranks = nullptr) {
    for (int i = 0; i < kLayers; ++i) {
      const at::Tensor index =
          at::arange(kWidth * kWidth, at::kDouble) * (i + 1);
      weights.push_back(at::sin(index).view({kWidth, kWidth}) / 6);
      biases.push_back(at::cos(at::arange(kWidth, at::kDouble) + i));
    }
    std::vector<FlatBufferEntry> entries;
    for (int i = 0; i < kLayers; ++i) {
      entries.push_back({"weight " + std::to_string(i), &weights[i], 0});
      entries.push_back({"bias " + std::to_string(i), &biases[i], 0});
    }
    FlatBufferOptions options;
    options.scalar_type = at::kDouble;
    options.with_gradients = true;
    if (ranks != nullptr) {
      options.make_gradients = [ranks](int64_t count, at::ScalarType type) {
        return ranks->zeros(count, type);
      };
    }
    flat_buffer.emplace(std::move(entries), options);
  }

  // `between` is called when backward has passed layer `where`.
  at::Tensor loss(const at::Tensor& input, int where = -1,
                  std::function<void()> between = nullptr) const;
};

// The identity; calls a function when backward reaches it.
struct Probe : torch::autograd::Function<Probe> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x, std::function<void()>* call) {
    context->saved_data["call"] = reinterpret_cast<int64_t>(call);
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    (*reinterpret_cast<std::function<void()>*>(
        context->saved_data["call"].toInt()))();
    return {gradients[0], at::Tensor()};
  }
};

at::Tensor Network::loss(const at::Tensor& input, int where,
                         std::function<void()> between) const {
  // The function must exist until the loss is freed, because backward needs it.
  static thread_local std::function<void()> call;
  call = std::move(between);
  at::Tensor x = input;
  for (int i = 0; i < kLayers; ++i) {
    if (i == where) x = Probe::apply(x, &call);
    x = at::tanh(at::matmul(x, weights[i]) + biases[i]);
  }
  return at::mul(x, x).sum();
}

at::Tensor input_of(int rank, int micro_batch = 0) {
  return at::sin(at::arange(8 * kWidth, at::kDouble) * 0.37 + 5 * rank +
                 micro_batch)
      .view({8, kWidth});
}

// The result if every gradient is summed by a plain all-reduce after backward.
at::Tensor plain_sum(collectives::Communicator& ranks, int micro_batches) {
  Network network;
  for (int i = 0; i < micro_batches; ++i) {
    network.loss(input_of(ranks.rank(), i)).backward();
  }
  at::Tensor gradients = network.flat_buffer->gradients();
  ranks.all_reduce(gradients);
  return gradients;
}

class GradientReducerTest : public testing::TestWithParam<RankBackend> {
 protected:
  void run(int size,
           const std::function<void(collectives::Communicator&)>& body) const {
    RankOptions options;
    options.backend = GetParam();
    run_ranks(
        size, [&body](int, collectives::Communicator& ranks) { body(ranks); },
        options);
  }
};

TEST_P(GradientReducerTest, EqualsAPlainSumOfAllGradients) {
  for (const int size : {2, 3}) {
    run(size, [](collectives::Communicator& ranks) {
      Network network(&ranks);
      GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
      EXPECT_GE(reducer.num_buckets(), 5);
      const at::Tensor expected = plain_sum(ranks, 1);
      for (int step = 0; step < 3; ++step) {
        network.flat_buffer->zero_gradients();
        reducer.begin(true);
        network.loss(input_of(ranks.rank())).backward();
        EXPECT_EQ(reducer.num_started(), reducer.num_buckets());
        reducer.finish();
        if (ranks.size() == 2) {
          EXPECT_TRUE(at::equal(network.flat_buffer->gradients(), expected));
        } else {
          // Chunks with other limits are summed in another order.
          EXPECT_TRUE(at::allclose(network.flat_buffer->gradients(), expected,
                                   1e-13, 1e-13));
        }
      }
    });
  }
}

TEST_P(GradientReducerTest, StartsBucketsWhileBackwardIsUnderWay) {
  run(2, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
    int64_t started_half_way = -1;
    reducer.begin(true);
    network
        .loss(input_of(ranks.rank()), kLayers / 2,
              [&] { started_half_way = reducer.num_started(); })
        .backward();
    EXPECT_GE(started_half_way, 1);
    EXPECT_LT(started_half_way, reducer.num_buckets());
    reducer.finish();
  });
}

TEST_P(GradientReducerTest, ReducesOnceForSeveralMicroBatches) {
  run(2, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
    for (int i = 0; i < 3; ++i) {
      reducer.begin(i == 2);
      network.loss(input_of(ranks.rank(), i)).backward();
      EXPECT_EQ(reducer.num_started(), i == 2 ? reducer.num_buckets() : 0);
    }
    reducer.finish();
    EXPECT_TRUE(
        at::equal(network.flat_buffer->gradients(), plain_sum(ranks, 3)));
  });
}

TEST_P(GradientReducerTest, FrozenParametersBlockNothing) {
  run(2, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
    for (const int layer : {0, 3, kLayers - 1}) {
      network.weights[layer].set_requires_grad(false);
    }
    reducer.begin(true);
    network.loss(input_of(ranks.rank())).backward();
    EXPECT_EQ(reducer.num_started(), reducer.num_buckets());
    reducer.finish();
    const at::Tensor expected = plain_sum(ranks, 1);
    for (int64_t slot = 0; slot < 2 * kLayers; ++slot) {
      const at::Tensor gradient =
          network.flat_buffer->view(slot, network.flat_buffer->gradients());
      if (network.flat_buffer->entry(slot).requires_grad()) {
        EXPECT_TRUE(
            at::equal(gradient, network.flat_buffer->view(slot, expected)));
      } else {
        EXPECT_EQ(gradient.abs().sum().item<double>(), 0);
      }
    }
  });
}

// One parameter does not affect this rank's samples, and one rank has no
// samples.
TEST_P(GradientReducerTest, MissingGradientsCountAsZeros) {
  run(3, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
    if (ranks.rank() != 1) {
      reducer.begin(true);
      const at::Tensor x = input_of(0);
      at::Tensor sum = at::matmul(x, network.weights[0]).sum();
      if (ranks.rank() == 2) {
        sum = sum + at::matmul(x, network.weights[5]).sum();
      }
      sum.backward();
    }
    reducer.finish();
    const at::Tensor column =
        input_of(0).sum(0).unsqueeze(1).expand({kWidth, kWidth});
    EXPECT_TRUE(at::allclose(network.weights[0].grad(), column * 2));
    EXPECT_TRUE(at::allclose(network.weights[5].grad(), column));
    EXPECT_EQ(network.weights[2].grad().abs().sum().item<double>(), 0);
  });
}

TEST_P(GradientReducerTest, ExtraTensorsTravelAfterTheLastBucket) {
  run(2, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
    for (int step = 0; step < 2; ++step) {
      std::vector<at::Tensor> extra = {
          at::full({7}, ranks.rank() + 1.0, at::kDouble),
          at::full({2}, 5, at::kLong)};
      reducer.begin(true);
      network.loss(input_of(ranks.rank())).backward();
      reducer.finish(extra);
      EXPECT_TRUE(at::equal(extra[0], at::full({7}, 3.0, at::kDouble)));
      EXPECT_TRUE(at::equal(extra[1], at::full({2}, 10, at::kLong)));
    }
  });
}

// All ranks fail at the same point of their backward and drop the step; then
// they repeat it with the right result.
TEST_P(GradientReducerTest, AFailedStepIsDropped) {
  for (const int where : {1, 3, kLayers - 1}) {
    run(3, [where](collectives::Communicator& ranks) {
      Network network(&ranks);
      GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
      const at::Tensor expected = plain_sum(ranks, 1);
      reducer.begin(true);
      EXPECT_THROW(
          network
              .loss(input_of(ranks.rank()), where,
                    [] { throw std::runtime_error("out of something"); })
              .backward(),
          std::runtime_error);
      // Waits until started operations have ended on every rank.
      ranks.barrier();
      reducer.abandon();
      EXPECT_EQ(reducer.num_started(), 0);

      network.flat_buffer->zero_gradients();
      reducer.begin(true);
      network.loss(input_of(ranks.rank())).backward();
      reducer.finish();
      EXPECT_TRUE(at::allclose(network.flat_buffer->gradients(), expected,
                               1e-13, 1e-13));
    });
  }
}

TEST_P(GradientReducerTest, ASecondBackwardIsRefused) {
  run(2, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    GradientReducer reducer(*network.flat_buffer, ranks, kBucketBytes);
    reducer.begin(true);
    network.loss(input_of(0)).backward();
    EXPECT_THROW(network.loss(input_of(0)).backward(), CheckFailure);
    EXPECT_THROW(reducer.begin(true), CheckFailure);
    reducer.finish();
  });
}

TEST_P(GradientReducerTest, HooksOutliveTheReducerHarmlessly) {
  run(2, [](collectives::Communicator& ranks) {
    Network network(&ranks);
    {
      GradientReducer first(*network.flat_buffer, ranks, kBucketBytes);
      first.begin(true);
    }
    network.loss(input_of(ranks.rank())).backward();
    network.flat_buffer->zero_gradients();
    GradientReducer second(*network.flat_buffer, ranks, kBucketBytes);
    second.begin(true);
    network.loss(input_of(ranks.rank())).backward();
    EXPECT_EQ(second.num_started(), second.num_buckets());
    second.finish();
    EXPECT_TRUE(
        at::equal(network.flat_buffer->gradients(), plain_sum(ranks, 1)));
  });
}

TEST_P(GradientReducerTest, BackwardOrFinishThrowsForALostPeer) {
  RankOptions options;
  options.backend = GetParam();
  EXPECT_THROW(run_ranks(
                   2,
                   [](int rank, collectives::Communicator& ranks) {
                     Network network(&ranks);
                     GradientReducer reducer(*network.flat_buffer, ranks,
                                             kBucketBytes);
                     ranks.barrier();
                     if (rank == 1) throw std::runtime_error("rank 1 dies");
                     EXPECT_THROW(
                         {
                           reducer.begin(true);
                           network.loss(input_of(0)).backward();
                           reducer.finish();
                         },
                         CommunicationError);
                   },
                   options),
               std::runtime_error);
}

INSTANTIATE_TEST_SUITE_P(Backends, GradientReducerTest,
                         testing::Values(RankBackend::kLocal,
                                         RankBackend::kNetwork,
                                         RankBackend::kSharedMemory),
                         [](const auto& info) {
                           return to_string(info.param);
                         });

TEST(GradientReducerAloneTest, AGroupOfOneDoesNothing) {
  const auto alone = collectives::make_single_communicator();
  Network network;
  Network plain;
  plain.loss(input_of(0)).backward();
  GradientReducer reducer(*network.flat_buffer, *alone);
  EXPECT_EQ(reducer.num_buckets(), 0);
  std::vector<at::Tensor> extra = {at::ones({3}, at::kDouble)};
  reducer.begin(true);
  network.loss(input_of(0)).backward();
  reducer.finish(extra);
  EXPECT_TRUE(at::equal(network.flat_buffer->gradients(),
                        plain.flat_buffer->gradients()));
  EXPECT_TRUE(at::equal(extra[0], at::ones({3}, at::kDouble)));
}

}  // namespace
}  // namespace headroom::data_parallel
