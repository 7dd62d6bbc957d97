// Compares ZeRO 2 and 3 with the undivided computation; ranks are threads.
#include "parallel/zero/sharded_layers.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "parallel/zero/layer_gather.h"
#include "tests/parallel/zero/layered_network.h"
#include "tests/support/run_ranks.h"

namespace headroom::zero {
namespace {

constexpr int64_t kSamples = 11;

struct Case {
  int ranks;
  int zero_stage;
  // Gloo gathers layers in the background, one layer ahead.
  RankBackend backend = RankBackend::kLocal;
};

// The gradients of all samples for each layer, computed by one process.
std::vector<at::Tensor> undivided(int frozen = 0) {
  LayeredNetwork network(nullptr, 0, nullptr, frozen);
  network.train(network_input(0, kSamples));
  std::vector<at::Tensor> layers;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    layers.push_back(network.flat_buffer->layer_gradients(layer).narrow(
        0, 0, network.flat_buffer->layers()[layer].size));
  }
  return layers;
}

// Expects the rank's slice of the undivided result.
void expect_slices(LayeredNetwork& network,
                   const std::vector<at::Tensor>& expected, int rank) {
  const ShardMap& map = *network.map;
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const int64_t size = map.slice_size(layer);
    at::Tensor padded = at::zeros({map.padded_layer_size(layer)}, at::kDouble);
    padded.narrow(0, 0, expected[layer].numel()).copy_(expected[layer]);
    EXPECT_TRUE(at::allclose(network.layers->gradient_shard().narrow(
                                 0, map.shard_offset(layer), size),
                             padded.narrow(0, rank * size, size), 1e-12, 1e-14))
        << "layer " << layer << ", rank " << rank;
  }
}

class ShardedLayersTest : public testing::TestWithParam<Case> {
 protected:
  static void run(
      int size,
      const std::function<void(int, collectives::Communicator&)>& body) {
    RankOptions options;
    options.backend = GetParam().backend;
    run_ranks(size, body, options);
  }
};

TEST_P(ShardedLayersTest, GradientsEqualOneProcess) {
  const std::vector<at::Tensor> expected = undivided();
  run(GetParam().ranks, [&](int rank, collectives::Communicator& ranks) {
    LayeredNetwork network(&ranks, GetParam().zero_stage);
    // The distribution is uneven: each middle rank has one sample, the last has
    // none, and rank 0 has all the rest.
    const int64_t rest = ranks.size() - 2;
    const int64_t begin =
        rank == 0 ? 0 : std::min(kSamples, kSamples - rest + rank - 1);
    const int64_t end =
        rank == 0 ? kSamples - rest : std::min<int64_t>(begin + 1, kSamples);
    network.layers->begin_step();
    network.train(network_input(begin, end));
    expect_slices(network, expected, rank);
  });
}

// The hooks of the parameters refer to the layers, and the layers refer to the
// parameters. This reference cycle must not keep memory allocated.
TEST_P(ShardedLayersTest, NothingOutlivesThem) {
  run(GetParam().ranks, [&](int rank, collectives::Communicator& ranks) {
    at::Tensor shard;
    {
      LayeredNetwork network(&ranks, GetParam().zero_stage);
      network.layers->begin_step();
      network.train(network_input(rank, rank + 1));
      shard = network.layers->gradient_shard();
    }
    EXPECT_EQ(shard.use_count(), 1u);
  });
}

TEST_P(ShardedLayersTest, MicroBatchesAddUp) {
  const std::vector<at::Tensor> expected = undivided();
  run(GetParam().ranks, [&](int rank, collectives::Communicator& ranks) {
    LayeredNetwork network(&ranks, GetParam().zero_stage);
    // The second step must not include gradients of the first.
    for (int step = 0; step < 2; ++step) {
      network.layers->begin_step();
      for (int part = 0; part < 3; ++part) {
        const int64_t parts = 3 * ranks.size(), index = 3 * rank + part;
        network.train(network_input(kSamples * index / parts,
                                    kSamples * (index + 1) / parts));
      }
      expect_slices(network, expected, rank);
    }
  });
}

TEST_P(ShardedLayersTest, FrozenLayersAreNotReduced) {
  const std::vector<at::Tensor> expected = undivided(2);
  run(GetParam().ranks, [&](int rank, collectives::Communicator& ranks) {
    LayeredNetwork network(&ranks, GetParam().zero_stage, nullptr, 2);
    network.layers->begin_step();
    const int64_t parts = ranks.size();
    network.train(
        network_input(kSamples * rank / parts, kSamples * (rank + 1) / parts));
    expect_slices(network, expected, rank);
  });
}

TEST_P(ShardedLayersTest, SpatialCopiesAddTheirParts) {
  const std::vector<at::Tensor> expected = undivided();
  const int sharing = GetParam().ranks;
  run(2 * sharing, [&](int rank, collectives::Communicator& world) {
    const auto ranks = world.split(rank % 2, rank);
    const auto copies = world.split(rank / 2, rank);
    LayeredNetwork network(ranks.get(), GetParam().zero_stage, copies.get());
    network.layers->begin_step();
    network.train(network_input(kSamples * rank / (2 * sharing),
                                kSamples * (rank + 1) / (2 * sharing)));
    expect_slices(network, expected, ranks->rank());
  });
}

// A rank fails at every place of a step in turn. Nothing is left behind, and
// the next step is right.
TEST_P(ShardedLayersTest, AFailureAnywhereLeavesNothingBehind) {
  const std::vector<at::Tensor> expected = undivided();
  run(GetParam().ranks, [&](int rank, collectives::Communicator& ranks) {
    LayeredNetwork network(&ranks, GetParam().zero_stage);
    const at::Tensor input = network_input(
        kSamples * rank / ranks.size(), kSamples * (rank + 1) / ranks.size());
    for (int failing = 0; failing < kLayers; ++failing) {
      for (const bool in_backward : {false, true}) {
        network.layers->begin_step();
        // The input of the first layer needs no gradient, so backward cannot
        // fail there.
        if (in_backward && failing == 0) continue;
        try {
          const at::Tensor loss = network.loss(
              input, in_backward ? -1 : failing, in_backward ? failing : -1);
          network.layers->begin_backward();
          loss.backward();
          ADD_FAILURE() << failing;
        } catch (const LocalFailure&) {
        }
        // Messages between two ranks arrive in order, so when this gather ends,
        // the gather that the failed pass had begun has ended too. A barrier
        // would not guarantee this, because it has its own connections.
        ranks.all_gather(at::zeros({ranks.size()}), at::zeros({1}));
        network.layers->abandon();
        for (int64_t layer = 0; layer < kLayers; ++layer) {
          EXPECT_FALSE(has_memory(network.flat_buffer->layer_gradients(layer)));
        }
      }
    }
    network.layers->begin_step();
    network.train(input);
    expect_slices(network, expected, rank);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ShardedLayersTest,
    testing::Values(Case{2, 2}, Case{3, 2}, Case{4, 2}, Case{2, 3}, Case{3, 3},
                    Case{4, 3}, Case{2, 2, RankBackend::kNetwork},
                    Case{2, 3, RankBackend::kNetwork},
                    Case{3, 3, RankBackend::kNetwork},
                    Case{3, 3, RankBackend::kSharedMemory}),
    [](const auto& info) {
      return "Zero" + std::to_string(info.param.zero_stage) + "Over" +
             std::to_string(info.param.ranks) + to_string(info.param.backend);
    });

}  // namespace
}  // namespace headroom::zero
