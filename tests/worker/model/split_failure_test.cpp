// A rank that fails in the middle of a pass over its layers: its peers end the
// pass, and the next step is as if nothing had happened.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/data_parallel/communicator_exchange.h"
#include "parallel/spatial/completable_exchange.h"
#include "tests/support/parity.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/model/tiny_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

constexpr int64_t kStride = 16;  // of tiny_table
constexpr int64_t kHeight = 5 * kStride, kWidth = 3 * kStride;
constexpr int kRanks = 3;

// Runs out of memory right before its n-th exchange (from 0).
class Failing final : public StatisticsExchange, public HaloExchange {
 public:
  Failing(spatial::CompletableExchange& inner, int64_t fails_at)
      : inner_(inner), fails_at_(fails_at) {}

  void sum(std::span<double> values) override {
    count();
    inner_.sum(values);
  }
  void sum_tensor(const at::Tensor& values) override {
    count();
    inner_.sum_tensor(values);
  }
  RowWindow window(int64_t local_rows) const override {
    return inner_.window(local_rows);
  }
  at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                     double beyond_edge) override {
    count();
    return inner_.receive(x, top, bottom, beyond_edge);
  }
  void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                 int64_t top) override {
    count();
    inner_.give_back(dhalo, dx, top);
  }
  void sum_over_images(const at::Tensor& values) override {
    count();
    inner_.sum_over_images(values);
  }

 private:
  void count() {
    if (num_exchanges_++ == fails_at_)
      throw c10::OutOfMemoryError({__func__, __FILE__, __LINE__}, "no memory");
  }
  spatial::CompletableExchange& inner_;
  int64_t num_exchanges_ = 0;
  int64_t fails_at_;
};

// The small table with means over the images, behind layer 4.
layers::ModelTable failing_table() {
  layers::ModelTable table = tiny_table();
  table.layers.insert(table.layers.begin() + 5,
                      table_layer(15, {-1}, 1, "SqueezeExcitation", {4.0}));
  table.layers.back().from = {8, 5};
  return table;
}

struct Lists {
  std::vector<spatial::ExchangeStep> forward, backward;
};

at::Tensor sum_of(const std::vector<at::Tensor>& heads) {
  at::Tensor sum = at::zeros({}, at::kDouble);
  for (const at::Tensor& head : heads) sum = sum + head.square().sum();
  return sum;
}

LayerGraph& learning(LayerGraph& graph) {
  for (const NamedTensor& entry : graph.state())
    if (entry.is_parameter()) entry.tensor->requires_grad_(true);
  return graph;
}

// What one pass each way exchanges, from an image of one block.
Lists recorded_lists() {
  LayerGraph graph(failing_table(), 2, at::kDouble, 0);
  learning(graph);
  spatial::ExchangeRecorder recorder;
  StepContext context;
  context.training = true;
  context.groups = {{0, 2, 2, true}};
  context.exchange = &recorder;
  context.halo = &recorder;
  Lists lists;
  const auto heads =
      graph.forward(at::rand({2, 3, kStride, kStride}, at::kDouble), context);
  lists.forward = recorder.take();
  sum_of(heads).backward();
  lists.backward = recorder.take();
  return lists;
}

// One rank's step; true when it ran to its end. `fails_at` < 0: it does.
bool run_step(LayerGraph& graph, const spatial::ImageSplit& partition, int rank,
              const Lists& lists, spatial::CompletableExchange& exchange,
              int64_t fails_at) {
  const spatial::RowRange rows = partition.image_rows_of(rank);
  const at::Tensor images = rule_input("A", 2, kHeight, kWidth, at::kDouble)
                                .narrow(2, rows.begin, rows.size());
  Failing failing(exchange, fails_at);
  StepContext context;
  context.training = true;
  context.groups = {{0, 1, 1, true}, {1, 2, 1, true}};
  context.exchange = &failing;
  context.halo = &failing;
  const spatial::PassSize size{2, 2, kWidth / kStride, rows.size() / kStride};
  for (const NamedTensor& entry : graph.state())
    entry.tensor->mutable_grad().reset();
  bool failed = false;
  at::Tensor sum;
  exchange.begin(lists.forward, size);
  try {
    sum = sum_of(graph.forward(images, context));
  } catch (const c10::OutOfMemoryError&) {
    failed = true;
  }
  exchange.complete();
  exchange.begin(lists.backward, size);
  if (!failed) {
    try {
      sum.backward();
    } catch (const c10::OutOfMemoryError&) {
      failed = true;
    }
  }
  exchange.complete();
  return !failed;
}

TEST(SplitFailure, TheListsAreOfTheNetworkAlone) {
  const Lists lists = recorded_lists();
  const auto count = [](const std::vector<spatial::ExchangeStep>& list,
                        spatial::ExchangeStep::Kind kind) {
    return std::count_if(
        list.begin(), list.end(),
        [&](const spatial::ExchangeStep& s) { return s.kind == kind; });
  };
  using Kind = spatial::ExchangeStep::Kind;
  LayerGraph graph(failing_table(), 2, at::kDouble, 0);
  const auto norms = static_cast<int64_t>(graph.batch_norms().size());
  EXPECT_EQ(count(lists.forward, Kind::kStatistics), norms);
  EXPECT_EQ(count(lists.backward, Kind::kStatistics), norms);
  // The images' gradient is not wanted, so one halo fewer returns.
  EXPECT_GT(count(lists.forward, Kind::kReceiveHalo), 3);
  EXPECT_EQ(count(lists.backward, Kind::kGiveBackHalo),
            count(lists.forward, Kind::kReceiveHalo) - 1);
  EXPECT_EQ(count(lists.forward, Kind::kImageSum), 1);
  EXPECT_EQ(count(lists.backward, Kind::kImageSum), 1);
}

TEST(SplitFailure, PeersEndTheirStepWhereverARankFails) {
  const Lists lists = recorded_lists();
  const auto num_exchanges =
      static_cast<int64_t>(lists.forward.size() + lists.backward.size());
  const spatial::ImageSplit partition(kHeight, kStride, kRanks);
  run_ranks(kRanks, [&](int rank, collectives::Communicator& ranks) {
    LayerGraph graph(failing_table(), 2, at::kDouble, 0);
    learning(graph);
    data_parallel::CommunicatorExchange statistics(ranks);
    spatial::CommunicatorHaloExchange halo(ranks, partition);
    spatial::CompletableExchange exchange(&statistics, &halo, at::kDouble);
    const auto gradient = [&] {
      return graph.state().front().tensor->grad().clone();
    };
    EXPECT_TRUE(run_step(graph, partition, rank, lists, exchange, -1));
    const at::Tensor expected = gradient();
    for (int64_t fails_at = 0; fails_at < num_exchanges; ++fails_at) {
      const bool fails = rank == fails_at % kRanks;
      EXPECT_EQ(run_step(graph, partition, rank, lists, exchange,
                         fails ? fails_at : -1),
                !fails);
      EXPECT_TRUE(run_step(graph, partition, rank, lists, exchange, -1));
      EXPECT_TRUE(at::equal(gradient(), expected)) << "after " << fails_at;
    }
  });
}

TEST(SplitFailure, APassThatLeavesItsListIsAProgrammersError) {
  const Lists lists = recorded_lists();
  const spatial::ImageSplit partition(kHeight, kStride, 1);
  const auto alone = collectives::make_single_communicator();
  data_parallel::CommunicatorExchange statistics(*alone);
  spatial::CommunicatorHaloExchange halo(*alone, partition);
  spatial::CompletableExchange exchange(&statistics, &halo, at::kDouble);
  LayerGraph graph(failing_table(), 2, at::kDouble, 0);
  learning(graph);
  EXPECT_TRUE(run_step(graph, partition, 0, lists, exchange, -1));
  const Lists swapped{lists.backward, lists.forward};
  EXPECT_THROW(run_step(graph, partition, 0, swapped, exchange, -1),
               CheckFailure);
}

}  // namespace
}  // namespace headroom::model
