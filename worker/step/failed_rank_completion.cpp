#include "worker/step/failed_rank_completion.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"

namespace headroom::step {

std::vector<PassEntry> merged_pass(
    pipeline::Instruction::Kind kind,
    const std::vector<int64_t>& exchange_layers,
    const std::vector<zero::LayerCollective>& collectives,
    const std::vector<int64_t>& collective_layers) {
  HEADROOM_CHECK(collectives.size() == collective_layers.size(),
                 std::to_string(collectives.size()) + " collectives in " +
                     std::to_string(collective_layers.size()) + " layers");
  const bool forward = kind == pipeline::Instruction::Kind::kForward;
  // A layer's turn; where it is the same, the collective is first if it
  // gathers.
  const auto turn = [forward](int64_t layer) {
    return forward ? layer : -layer;
  };
  std::vector<PassEntry> entries;
  size_t exchange = 0, collective = 0;
  while (exchange < exchange_layers.size() || collective < collectives.size()) {
    const bool exchanges_are_done = exchange == exchange_layers.size();
    bool is_collective = exchanges_are_done;
    if (!exchanges_are_done && collective < collectives.size()) {
      const int64_t other = turn(exchange_layers[exchange]);
      const int64_t mine = turn(collective_layers[collective]);
      is_collective =
          mine < other ||
          (mine == other && collectives[collective].kind ==
                                zero::LayerCollective::Kind::kGather);
    }
    ++(is_collective ? collective : exchange);
    entries.push_back(is_collective ? PassEntry::kLayerCollective
                                    : PassEntry::kExchange);
  }
  return entries;
}

void complete_merged(const std::vector<PassEntry>& entries,
                     spatial::CompletableExchange& exchange,
                     size_t num_collectives,
                     const std::function<void()>& complete_next_collective) {
  const size_t num_done = exchange.num_done() + num_collectives;
  const auto first = entries.begin() + static_cast<std::ptrdiff_t>(num_done);
  HEADROOM_CHECK(
      num_done <= entries.size() &&
          std::count(entries.begin(), first, PassEntry::kExchange) ==
              static_cast<std::ptrdiff_t>(exchange.num_done()),
      "after " + std::to_string(exchange.num_done()) + " exchanges and " +
          std::to_string(num_collectives) +
          " collectives of layers the pass is not where its list is");
  for (auto entry = first; entry != entries.end(); ++entry) {
    if (*entry == PassEntry::kExchange) {
      exchange.complete_next();
    } else {
      complete_next_collective();
    }
  }
}

void release_failed_graph() {
  const at::Tensor leaf = at::ones({1}).requires_grad_();
  leaf.add(0).backward();
}

}  // namespace headroom::step
