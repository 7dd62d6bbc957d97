#include "worker/loss/packed_targets.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/loss_call.h"

namespace headroom::loss {
namespace {

// Index of each match's cell in [n, H, W, anchors].
std::vector<int64_t> cells_of(const LevelTargets& targets,
                              const HeadSize& head) {
  const int64_t sizes[] = {head.images, head.anchors, head.height, head.width,
                           head.classes};
  const int64_t* index = targets.index.const_data_ptr<int64_t>();
  std::vector<int64_t> cells;
  for (int64_t match = 0; match < targets.size();
       ++match, index += kIndexFields) {
    bool is_inside = true;
    for (int64_t i = 0; i < kIndexFields; ++i) {
      is_inside = is_inside && index[i] >= 0 && index[i] < sizes[i];
    }
    HEADROOM_CHECK(is_inside, cat("match ", match, " of ", targets.size(),
                                  " lies outside the head"));
    cells.push_back(
        ((index[0] * head.height + index[2]) * head.width + index[3]) *
            head.anchors +
        index[1]);
  }
  return cells;
}

void pack_level(const LevelTargets& targets, const HeadSize& head,
                const kernels::MatchLayout& at, uint8_t* to) {
  HEADROOM_CHECK(head.images * head.anchors * head.height * head.width <=
                     std::numeric_limits<int32_t>::max(),
                 "a level of more than 2^31 cells");
  const std::vector<int64_t> cells = cells_of(targets, head);
  std::vector<int64_t> order(cells.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int64_t match) {
    return cells[static_cast<size_t>(match)];
  });
  const auto count = static_cast<int32_t>(cells.size());
  std::memcpy(to, &count, sizeof count);
  const int64_t* const index = targets.index.const_data_ptr<int64_t>();
  const auto* const boxes =
      static_cast<const uint8_t*>(targets.box.const_data_ptr());
  const auto* const anchors =
      static_cast<const uint8_t*>(targets.anchors.const_data_ptr());
  const int64_t box_bytes = 4 * at.element_bytes;
  const int64_t anchor_bytes = 2 * at.element_bytes;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t match = order[static_cast<size_t>(i)];
    const auto cell = static_cast<int32_t>(cells[static_cast<size_t>(match)]);
    const auto own_class =
        static_cast<int32_t>(index[match * kIndexFields + 4]);
    std::memcpy(to + at.cells() + 4 * i, &cell, sizeof cell);
    std::memcpy(to + at.classes() + 4 * i, &own_class, sizeof own_class);
    std::memcpy(to + at.boxes() + box_bytes * i, boxes + box_bytes * match,
                static_cast<size_t>(box_bytes));
    std::memcpy(to + at.anchors() + anchor_bytes * i,
                anchors + anchor_bytes * match,
                static_cast<size_t>(anchor_bytes));
  }
}

}  // namespace

std::vector<HeadSize> head_sizes(const std::vector<HeadGrid>& grids,
                                 int64_t classes, int64_t images,
                                 int64_t height, int64_t width) {
  std::vector<HeadSize> sizes;
  for (const HeadGrid& grid : grids) {
    sizes.push_back({images, grid.anchors, height / grid.stride,
                     width / grid.stride, classes});
  }
  return sizes;
}

PackedTargets pack_targets(const std::vector<LevelTargets>& targets,
                           const std::vector<HeadSize>& heads,
                           int64_t capacity) {
  HEADROOM_CHECK(
      !targets.empty() && targets.size() == heads.size(),
      cat(targets.size(), " levels of targets for ", heads.size(), " heads"));
  PackedTargets packed;
  std::vector<kernels::MatchLayout> layouts;
  int64_t bytes = 0;
  for (const LevelTargets& level : targets) {
    layouts.push_back({std::max(level.size(), capacity),
                       static_cast<int64_t>(level.box.element_size())});
    packed.begins.push_back(bytes);
    packed.capacities.push_back(layouts.back().capacity);
    bytes += layouts.back().bytes();
  }
  packed.bytes = at::zeros({bytes}, at::kByte);
  for (size_t i = 0; i < targets.size(); ++i) {
    pack_level(targets[i], heads[i], layouts[i],
               packed.bytes.mutable_data_ptr<uint8_t>() + packed.begins[i]);
  }
  return packed;
}

}  // namespace headroom::loss
