// CompletableExchange: exchanges of batch-norm sums and halo rows that a rank
// can finish without its maps.
//
// Passes everything on, and knows from the recorded list of the pass
// (exchange_list.h) what is still to come. A rank that failed calls complete():
// it sends zeros and throws away what it receives, so its peers end the pass as
// ever; that the step is void is for the vote to say.
//
//   begin(list, size);  forward or backward;    on failure: complete();
//
// Ownership: borrows the exchanges; either may be null where the list has no
// step of its kind. Keeps the memory that completing needs, which grows in
// begin() only.
// Threads: the thread that runs the step.
// Errors: CommunicationError. HEADROOM_CHECK when a pass does not follow its
// list.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "parallel/base/halo_exchange.h"
#include "parallel/base/statistics_exchange.h"
#include "parallel/spatial/exchange_list.h"
#include "parallel/spatial/halo_exchange.h"

namespace headroom::spatial {

// What scales a list to a micro-batch.
struct PassSize {
  int64_t samples = 0;
  int64_t num_groups = 0;      // of batch norm, as this micro-batch lists them
  int64_t column_blocks = 1;   // image width / largest stride
  int64_t own_row_blocks = 1;  // blocks of rows that are here
};

class CompletableExchange final : public StatisticsExchange,
                                  public HaloExchange {
 public:
  // `map_options`: type and device of all maps.
  CompletableExchange(StatisticsExchange* statistics,
                      CommunicatorHaloExchange* halo,
                      const at::TensorOptions& map_options);

  // A forward or a backward begins. `list` must outlive it.
  void begin(const std::vector<ExchangeStep>& list, const PassSize& size);
  // What is left of it. Does nothing after a whole pass.
  void complete();
  // The same one by one, where other collectives come in between.
  std::size_t num_done() const { return num_done_; }
  void complete_next();

  void sum(std::span<double> values) override;
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
  at::Tensor zeros_;    // sent
  at::Tensor discard_;  // received into
};

}  // namespace headroom::spatial
