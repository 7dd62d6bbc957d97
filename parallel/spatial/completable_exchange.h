// The exchanges of a pass of the network with other ranks (batch-norm sums,
// halo rows, sums over images), as a list that a failed rank can finish without
// its maps.
//
// A rank that fails in the middle of a pass must take part in the rest of it,
// or its peers wait for ever. What there is to exchange follows from the
// network alone; samples, groups and image sizes only scale it. So
// ExchangeRecorder writes the list down once, on the smallest image, and
// CompletableExchange follows it in every pass.
//
// Both are used by the thread that runs the step. Errors: CommunicationError;
// HEADROOM_CHECK when a pass does not follow its list.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "parallel/base/layer_exchange.h"
#include "parallel/spatial/halo_exchange.h"

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
  // The layer of the model in which it happens, as the recorder was told
  // (set_layer).
  int64_t layer = 0;
  bool operator==(const ExchangeStep&) const = default;
};

// An exchange without ranks that writes down what it is asked for. It is handed
// to a pass over images [n, channels, block, block] in one batch-norm group of
// two or more.
class ExchangeRecorder final : public StatisticsExchange, public HaloExchange {
 public:
  void sum(std::span<double> values) override;
  void sum_tensor(const at::Tensor& values) override;
  RowWindow window(int64_t local_rows) const override;
  at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                     double beyond_edge) override;
  void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                 int64_t top) override;
  void sum_over_images(const at::Tensor& values) override;

  void set_layer(int64_t layer) { layer_ = layer; }
  // The list since the last call: forward's, then backward's.
  std::vector<ExchangeStep> take() { return std::exchange(steps_, {}); }

 private:
  void add(ExchangeStep step);

  std::vector<ExchangeStep> steps_;
  int64_t layer_ = 0;
};

// The size of a micro-batch, by which the list's entries are scaled.
struct PassSize {
  int64_t samples = 0;
  // Batch norm's groups, as this micro-batch lists them.
  int64_t num_groups = 0;
  int64_t column_blocks = 1;   // image width / largest stride
  int64_t own_row_blocks = 1;  // blocks of rows that are here
};

// Passes every exchange on, and knows from the list what is still to come:
//
//   begin(list, size);  forward or backward;    on failure: complete();
//
// complete() sends zeros and throws away what it receives, so peers end the
// pass as ever; that the step is void is for the vote to say.
//
// Borrows the exchanges; either may be null where the list has no step of its
// kind. Keeps the memory that completing needs, which grows in begin() only.
class CompletableExchange final : public StatisticsExchange,
                                  public HaloExchange {
 public:
  // `map_options`: type and device of all maps.
  CompletableExchange(StatisticsExchange* statistics,
                      CommunicatorHaloExchange* halo,
                      const at::TensorOptions& map_options);

  // A forward or a backward begins. `list` must outlive it.
  void begin(const std::vector<ExchangeStep>& list, const PassSize& size);
  // Carries out the rest of the list; nothing after a whole pass.
  void complete();
  // The same one by one, where other collectives come in between.
  std::size_t num_done() const { return num_done_; }
  void complete_next();

  void sum(std::span<double> values) override;
  void sum_tensor(const at::Tensor& values) override;
  RowWindow window(int64_t local_rows) const override;
  at::Tensor receive(const at::Tensor& x, int64_t top, int64_t bottom,
                     double beyond_edge) override;
  void give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                 int64_t top) override;
  void sum_over_images(const at::Tensor& values) override;

 private:
  HaloTask task_of(const ExchangeStep& step) const;
  int64_t num_values(const ExchangeStep& step) const;
  const ExchangeStep& expect(ExchangeStep::Kind kind) const;
  void expect_halo(ExchangeStep::Kind kind, const at::Tensor& map, int64_t top,
                   int64_t bottom) const;

  StatisticsExchange* const statistics_;
  CommunicatorHaloExchange* const halo_;
  const at::TensorOptions map_options_;
  std::span<const ExchangeStep> list_;
  PassSize size_;
  std::size_t num_done_ = 0;
  std::vector<double> sums_;
  at::Tensor device_sums_;  // used if maps lie on a device
  at::Tensor zeros_;        // sent
  at::Tensor discard_;      // received into
};

}  // namespace headroom::spatial
