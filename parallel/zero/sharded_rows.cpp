#include "parallel/zero/sharded_rows.h"

#include <string>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::zero {

using Kind = RowCollective::Kind;

ShardedRows::ShardedRows(const ShardMap& map, std::vector<Row> rows,
                         collectives::Communicator& ranks,
                         collectives::Communicator& copies)
    : fetches_ahead_(ranks.gathers_in_background()) {
  std::vector<at::Tensor> values;
  std::vector<GradientScatter::Row> gradients;
  std::vector<int64_t> all, learning;
  for (Row& row : rows) {
    const auto index = static_cast<int64_t>(all.size());
    all.push_back(index);
    if (!row.gradients.parameters.empty()) learning.push_back(index);
    if (row.values.defined()) values.push_back(std::move(row.values));
    gradients.push_back(std::move(row.gradients));
  }
  if (!values.empty()) {
    values_ = std::make_unique<RowGather>(map, std::move(values), ranks);
    forward_ = forward_list(all);
  }
  backward_ = backward_list(learning, !shards_values() ? Gathers::kNone
                                      : fetches_ahead_ ? Gathers::kAhead
                                                       : Gathers::kInTurn);
  gradients_ = std::make_unique<GradientScatter>(
      map, std::move(gradients), ranks, copies,
      [this](int64_t row) { on_final(row); });
}

void ShardedRows::begin_step() {
  if (gradient_shard().defined()) gradient_shard().zero_();
}

void ShardedRows::begin_forward() { cursor_.begin(forward_); }

void ShardedRows::begin_backward() {
  cursor_.begin(backward_);
  gradients_->begin_backward();
}

void ShardedRows::use(int64_t row) {
  if (!shards_values()) return;
  const RowCollective gather{Kind::kGather, row};
  if (fetch_ && cursor_.next_is(gather)) finish_fetch();
  if (!values_->is_whole(row)) {
    HEADROOM_CHECK(cursor_.next_is(gather), to_string(gather) + " out of turn");
    values_->gather(row);  // may run out of memory: then it is still to be done
    cursor_.pass(gather);
  }
  fetch_next();
}

void ShardedRows::fetch_next() {
  if (!fetches_ahead_ || fetch_ || cursor_.done()) return;
  const RowCollective next = cursor_.next();
  if (next.kind == Kind::kGather) fetch_ = values_->begin_gather(next.row);
}

void ShardedRows::finish_fetch() {
  if (!fetch_) return;
  std::exchange(fetch_, nullptr)->wait();
  cursor_.pass(cursor_.next());
}

void ShardedRows::done_with(int64_t row) {
  if (shards_values()) values_->release(row);
}

void ShardedRows::on_final(int64_t row) {
  finish_fetch();
  cursor_.pass({Kind::kScatter, row});
  done_with(row);  // first: a backend's scratch then takes its place
  gradients_->reduce(row);
}

void ShardedRows::complete_next() {
  const RowCollective next = cursor_.next();
  if (fetch_) {
    finish_fetch();
  } else {
    cursor_.pass(next);
    if (next.kind == Kind::kScatter) {
      gradients_->reduce_zeros(next.row);
    } else {
      // A row's gather fails, if at all, before its memory is there.
      values_->gather(next.row);
    }
  }
  if (shards_values() && values_->is_whole(next.row)) {
    values_->release(next.row);
  }
}

void ShardedRows::complete_pass() {
  while (!cursor_.done()) complete_next();
  gradients_->release_all();
  if (!shards_values()) return;
  for (int64_t row = 0; row < static_cast<int64_t>(forward_.size()); ++row) {
    if (values_->is_whole(row)) values_->release(row);
  }
}

}  // namespace headroom::zero
