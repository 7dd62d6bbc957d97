// ZeroRowRunner: a row's parameters are whole while it runs forward, and again
// from the first moment of its backward until its last gradient is there
// (ZeRO 3).
//
//   use(row)   row.forward, or an inner runner   done_with(row)
//   backward:  the node added to the outputs     use(row)
//              the row's own nodes               gradients; then released
//
// Ownership: borrows all it is given; autograd graphs refer to it, so it must
// outlive the step.
// Threads: the thread that runs the step.
#pragma once

#include <vector>

#include "parallel/zero/sharded_rows.h"
#include "worker/model/row_runner.h"

namespace headroom::step {

class ZeroRowRunner final : public model::RowRunner {
 public:
  // Row `index` of the table is part part_of_row[index] of `rows`; -1: it has
  // no parameters.
  ZeroRowRunner(zero::ShardedRows& rows, std::vector<int64_t> part_of_row)
      : rows_(rows), part_of_row_(std::move(part_of_row)) {}

  // Rows are run by `inner`; null: simply called.
  void set_inner(model::RowRunner* inner) { inner_ = inner; }

  std::vector<at::Tensor> run(int64_t index, model::Row& row,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override;

 private:
  zero::ShardedRows& rows_;
  const std::vector<int64_t> part_of_row_;
  model::RowRunner* inner_ = nullptr;
};

}  // namespace headroom::step
