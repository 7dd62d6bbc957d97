// If the rows of an image are split over ranks, a rank keeps for backward only
// its share of the memory that one rank keeps for the whole image.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/layer_exchange.h"
#include "parallel/spatial/image_split.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {
namespace {

// Replaces the exchanges with other ranks: all their values are zeros. Memory
// does not depend on values.
class PeersOfZeros final : public HaloExchange, public StatisticsExchange {
 public:
  PeersOfZeros(const spatial::ImageSplit& partition, int rank)
      : partition_(partition), rank_(rank) {}

  void sum(std::span<double>) override {}
  void sum_tensor(const at::Tensor&) override {}
  RowWindow window(int64_t local_rows) const override {
    const int64_t rows = partition_.rows_per_block(rank_, local_rows);
    return {partition_.rows_of(rank_, rows).begin,
            partition_.num_blocks() * rows};
  }
  at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                     double) override {
    return at::zeros({x.size(0), x.size(1), top + bottom, x.size(3)},
                     x.options().memory_format(at::MemoryFormat::ChannelsLast));
  }
  void give_back(const at::Tensor&, const at::Tensor&, int64_t) override {}
  void sum_over_images(const at::Tensor&) override {}

 private:
  spatial::ImageSplit partition_;
  int rank_;
};

struct Bytes {
  double kept = 0;  // held after forward
  double peak = 0;  // the maximum in forward and backward
};

// Bytes of a step, without the weights and their gradients.
Bytes bytes_of_a_step(const std::string& model, int64_t size, int ranks,
                      int rank) {
  LayerGraph graph(layers::load_model_table(model), 80, at::kFloat, 0);
  for (const NamedTensor& entry : graph.state()) {
    if (!entry.is_parameter()) continue;
    entry.tensor->requires_grad_(true);
    entry.tensor->mutable_grad() = at::zeros_like(*entry.tensor);
  }
  const spatial::ImageSplit partition(size, 32, ranks);
  PeersOfZeros peers(partition, rank);
  StepContext context;
  context.training = true;
  context.groups = {{0, 1, 1, true}};
  if (ranks > 1) {
    context.exchange = &peers;
    context.halo = &peers;
  }
  activations::CountingAllocator& memory =
      activations::CountingAllocator::instance();
  const int64_t before = memory.live_bytes();
  memory.reset_peak();
  Bytes bytes;
  const at::Tensor images =
      at::rand({1, 3, partition.image_rows_of(rank).size(), size})
          .contiguous(at::MemoryFormat::ChannelsLast);
  std::vector<at::Tensor> heads = graph.forward(images, context);
  bytes.kept = static_cast<double>(memory.live_bytes() - before);
  at::Tensor sum = at::zeros({});
  for (at::Tensor& head : heads) {
    sum = sum + head.sum();
    head.reset();
  }
  sum.backward();
  bytes.peak = static_cast<double>(memory.peak_bytes() - before);
  return bytes;
}

// Expects that a rank keeps at most the share `most` of the bytes for the whole
// image. The same limit holds for the peak.
void expect_share(const std::string& model, int64_t size, int ranks,
                  double most) {
  activations::CountingAllocator::install();
  at::set_num_threads(1);
  const Bytes whole = bytes_of_a_step(model, size, 1, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const Bytes part = bytes_of_a_step(model, size, ranks, rank);
    std::printf(
        "%s at %d px, rank %d of %d: keeps %.3f, peak %.3f of %.0f MB\n",
        model.c_str(), static_cast<int>(size), rank, ranks,
        part.kept / whole.kept, part.peak / whole.peak, whole.peak / 1e6);
    EXPECT_LE(part.kept, most * whole.kept) << "rank " << rank;
    EXPECT_LE(part.peak, most * whole.peak) << "rank " << rank;
  }
}

TEST(SplitMemory, HalfTheRowsAreHalfTheMemory) {
  expect_share("yolov5s", 640, 2, 0.54);
}

TEST(SplitMemory, AQuarterOfTheRowsIsAQuarterOfTheMemory) {
  expect_share("yolov5n", 640, 4, 0.29);
}

}  // namespace
}  // namespace headroom::model
