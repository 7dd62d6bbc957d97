// What a pass of the network exchanges with other ranks, in order: batch-norm
// sums, halo rows and sums over images.
//
// A step's exchanges are a fixed list: a rank that fails in the middle of a
// pass must take part in the rest of it, or its peers wait for ever. The list
// follows from the network alone; samples, groups and image sizes only scale
// its entries. So it is recorded once, on the smallest image.
//
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "parallel/base/halo_exchange.h"
#include "parallel/base/statistics_exchange.h"

namespace headroom::spatial {

struct ExchangeStep {
  enum class Kind { kStatistics, kReceiveHalo, kGiveBackHalo, kImageSum };
  Kind kind = Kind::kStatistics;
  // Statistics: values per batch-norm group. Image sum: per sample.
  int64_t values = 0;
  // Halo: the map of an image of one block, the largest stride in square.
  int64_t channels = 0;
  int64_t rows_per_block = 0;
  int64_t columns_per_block = 0;
  int64_t top = 0;
  int64_t bottom = 0;
  // Where in the model it happens, in the recorder's user's own numbers.
  int64_t layer = 0;
  bool operator==(const ExchangeStep&) const = default;
};

// An exchange without ranks that writes down what it is asked for. To be handed
// to a pass over images [n, channels, block, block] in one batch-norm group of
// two or more.
class ExchangeRecorder final : public StatisticsExchange, public HaloExchange {
 public:
  void sum(std::span<double> values) override;
  RowWindow window(int64_t local_rows) const override;
  at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                     double beyond_edge) override;
  void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                 int64_t top) override;
  void sum_over_images(const at::Tensor& values) override;

  // What is written down from now on happens in `layer`.
  void set_layer(int64_t layer) { layer_ = layer; }
  // The list since the last call: forward's, then backward's.
  std::vector<ExchangeStep> take() { return std::exchange(steps_, {}); }

 private:
  void add(ExchangeStep step);

  std::vector<ExchangeStep> steps_;
  int64_t layer_ = 0;
};

}  // namespace headroom::spatial
