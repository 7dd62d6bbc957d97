#include "parallel/zero/collective_list.h"

#include <utility>

#include "parallel/base/check.h"

namespace headroom::zero {

using Kind = RowCollective::Kind;

std::string to_string(const RowCollective& collective) {
  return (collective.kind == Kind::kGather ? "gather " : "scatter ") +
         std::to_string(collective.row);
}

std::vector<RowCollective> forward_list(const std::vector<int64_t>& rows) {
  std::vector<RowCollective> list;
  for (const int64_t row : rows) list.push_back({Kind::kGather, row});
  return list;
}

std::vector<RowCollective> backward_list(const std::vector<int64_t>& rows,
                                         Gathers gathers) {
  std::vector<RowCollective> list;
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const bool is_first = row == rows.rbegin();
    const auto next = row + 1;
    if (gathers == Gathers::kInTurn || (gathers == Gathers::kAhead && is_first))
      list.push_back({Kind::kGather, *row});
    if (gathers == Gathers::kAhead && next != rows.rend())
      list.push_back({Kind::kGather, *next});
    list.push_back({Kind::kScatter, *row});
  }
  return list;
}

void CollectiveCursor::begin(std::vector<RowCollective> list) {
  HEADROOM_CHECK(done(), "a pass begins before the last one's " +
                             to_string(list_.at(next_)));
  list_ = std::move(list);
  next_ = 0;
}

void CollectiveCursor::pass(const RowCollective& collective) {
  HEADROOM_CHECK(
      next_is(collective),
      to_string(collective) + " in place of " +
          (done() ? std::string("the end of the pass") : to_string(next())));
  ++next_;
}

}  // namespace headroom::zero
