// GatherRowRunner: a row's parameters are whole while it runs, in evaluation:
// the averaged weights under ZeRO.
//
// Every gather is collective: ranks run the network equally often, or take part
// with skip().
// Threads: one. Ownership: borrows the rows.
#pragma once

#include <utility>
#include <vector>

#include "parallel/zero/row_gather.h"
#include "worker/model/row_runner.h"

namespace headroom {

class GatherRowRunner final : public RowRunner {
 public:
  // `part_of_row` as in ZeroRowRunner.
  GatherRowRunner(RowGather& rows, std::vector<int64_t> part_of_row)
      : rows_(rows), part_of_row_(std::move(part_of_row)) {}

  std::vector<at::Tensor> run(int64_t index, Row& row,
                              const std::vector<at::Tensor>& inputs,
                              const StepContext& context) override {
    const int64_t part = part_of_row_.at(static_cast<size_t>(index));
    if (part >= 0) rows_.gather(part);
    std::vector<at::Tensor> outputs = row.forward(inputs, context);
    if (part >= 0) rows_.release(part);
    return outputs;
  }

  // One forward of a rank that has nothing to run.
  void skip() {
    for (const int64_t part : part_of_row_) {
      if (part < 0) continue;
      rows_.gather(part);
      rows_.release(part);
    }
  }

 private:
  RowGather& rows_;
  const std::vector<int64_t> part_of_row_;
};

}  // namespace headroom
