// GatherRowRunner: a row's parameters are whole while it runs, in evaluation:
// the averaged weights under ZeRO.
//
// Every gather is collective: ranks run the network equally often, or take part
// with skip().
// Threads: one. Ownership: borrows the rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "parallel/zero/row_gather.h"
#include "worker/model/row_runner.h"

namespace headroom::step {

class GatherRowRunner final : public model::RowRunner {
 public:
  // `part_of_row` as in ZeroRowRunner.
  GatherRowRunner(zero::RowGather& rows, std::vector<int64_t> part_of_row)
      : rows_(rows), part_of_row_(std::move(part_of_row)) {}

  // A forward begins.
  void begin() { next_ = 0; }

  std::vector<at::Tensor> run(int64_t index, model::Row& row,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    const int64_t part = part_of_row_.at(static_cast<size_t>(index));
    if (part >= 0) {
      rows_.gather(part);  // may run out of memory: then it is still to be done
      next_ = index + 1;
    }
    std::vector<at::Tensor> outputs = row.forward(inputs, context);
    if (part >= 0) rows_.release(part);
    return outputs;
  }

  // One forward of a rank that has nothing to run.
  void skip() {
    begin();
    complete();
  }

  // Frees what a failed forward left: before completing it.
  void release_all() {
    for (const int64_t part : part_of_row_) {
      if (part >= 0 && rows_.is_whole(part)) rows_.release(part);
    }
  }
  // In place of what it did not gather.
  void complete() {
    while (has_next()) complete_next();
  }
  // The same one by one, where exchanges come in between.
  void complete_next() {
    const int64_t part = part_of_row_[static_cast<size_t>(next_row())];
    next_ = next_row() + 1;
    rows_.gather(part);
    rows_.release(part);
  }
  // All rows that are gathered in a forward, and how many of them are done.
  std::vector<int64_t> gathered_rows() const {
    std::vector<int64_t> rows;
    for (size_t row = 0; row < part_of_row_.size(); ++row) {
      if (part_of_row_[row] >= 0) rows.push_back(static_cast<int64_t>(row));
    }
    return rows;
  }
  size_t num_done() const {
    return static_cast<size_t>(std::ranges::count_if(
        part_of_row_.begin(), part_of_row_.begin() + next_,
        [](int64_t part) { return part >= 0; }));
  }

 private:
  int64_t next_row() const {
    return std::find_if(part_of_row_.begin() + next_, part_of_row_.end(),
                        [](int64_t part) { return part >= 0; }) -
           part_of_row_.begin();
  }
  bool has_next() const {
    return next_row() < static_cast<int64_t>(part_of_row_.size());
  }

  zero::RowGather& rows_;
  const std::vector<int64_t> part_of_row_;
  int64_t next_ = 0;  // rows before it are done
};

}  // namespace headroom::step
