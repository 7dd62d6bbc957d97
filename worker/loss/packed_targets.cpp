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
#include "worker/kernels/place_loss_call.h"
#include "worker/loss/place_assignment.h"

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

namespace {

template <typename T>
void write_labels(const std::vector<LabelRow>& labels, int64_t height,
                  int64_t width, const kernels::PlaceLabelLayout& at,
                  uint8_t* to) {
  const auto numbers = [to](int64_t begin) {
    return reinterpret_cast<int32_t*>(to + begin);
  };
  *numbers(0) = static_cast<int32_t>(labels.size());
  int32_t* const ends = numbers(at.begins()) + 1;
  auto* box = reinterpret_cast<kernels::CornerBox<T>*>(to + at.boxes());
  for (size_t i = 0; i < labels.size(); ++i) {
    const PlaceLabel<T> label =
        pixel_label(labels[i], static_cast<T>(width), static_cast<T>(height));
    for (int64_t image = labels[i].image; image < at.images; ++image) {
      ++ends[image];
    }
    numbers(at.image())[i] = static_cast<int32_t>(labels[i].image);
    numbers(at.classes())[i] = static_cast<int32_t>(label.class_index);
    *box++ = label.box;
  }
}

}  // namespace

PackedTargets pack_labels(const std::vector<LabelRow>& labels,
                          int64_t num_classes, int64_t images, int64_t height,
                          int64_t width, at::ScalarType type,
                          int64_t capacity) {
  for (const LabelRow& label : labels) {
    HEADROOM_CHECK(label.image >= 0 && label.image < images &&
                       label.class_index >= 0 &&
                       label.class_index < num_classes,
                   cat("a label of class ", label.class_index, " of ",
                       num_classes, " in image ", label.image, " of ", images));
  }
  std::vector<LabelRow> sorted = labels;
  std::ranges::stable_sort(sorted, {}, &LabelRow::image);
  const kernels::PlaceLabelLayout at = {
      std::max(std::ssize(labels), capacity), images,
      static_cast<int64_t>(c10::elementSize(type))};
  PackedTargets packed{at::zeros({at.bytes()}, at::kByte), {0}, {at.capacity}};
  auto* const to = packed.bytes.mutable_data_ptr<uint8_t>();
  if (type == at::kDouble) {
    write_labels<double>(sorted, height, width, at, to);
  } else {
    write_labels<float>(sorted, height, width, at, to);
  }
  return packed;
}

}  // namespace headroom::loss
