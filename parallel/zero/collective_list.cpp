#include "parallel/zero/collective_list.h"

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::zero {

using Kind = LayerCollective::Kind;

std::string to_string(const LayerCollective& collective) {
  return cat(collective.kind == Kind::kGather ? "gather " : "scatter ",
             collective.layer);
}

std::vector<LayerCollective> forward_list(const std::vector<int64_t>& layers) {
  std::vector<LayerCollective> list;
  for (const int64_t layer : layers) list.push_back({Kind::kGather, layer});
  return list;
}

std::vector<LayerCollective> backward_list(const std::vector<int64_t>& layers,
                                           Gathers gathers) {
  std::vector<LayerCollective> list;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
    const bool is_first = layer == layers.rbegin();
    const auto next = layer + 1;
    if (gathers == Gathers::kInTurn || (gathers == Gathers::kAhead && is_first))
      list.push_back({Kind::kGather, *layer});
    if (gathers == Gathers::kAhead && next != layers.rend())
      list.push_back({Kind::kGather, *next});
    list.push_back({Kind::kScatter, *layer});
  }
  return list;
}

void CollectiveCursor::begin(std::vector<LayerCollective> list) {
  HEADROOM_CHECK(done(), "a pass begins before the last one's " +
                             to_string(list_.at(next_)));
  list_ = std::move(list);
  next_ = 0;
}

void CollectiveCursor::pass(const LayerCollective& collective) {
  HEADROOM_CHECK(
      next_is(collective),
      to_string(collective) + " in place of " +
          (done() ? std::string("the end of the pass") : to_string(next())));
  ++next_;
}

}  // namespace headroom::zero
