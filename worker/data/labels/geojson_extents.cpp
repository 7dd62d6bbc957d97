#include "worker/data/labels/geojson_extents.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace headroom::labels {
namespace {

// Returns true if may_meet() is true of any box inside `extent`. may_meet()
// moves an extent by whole turns to the place where it is nearest to the
// picture. So if a box inside `extent` reaches the picture, `extent` reaches
// the picture too, except for rounding. The margin kRounding allows for
// rounding.
bool may_hold_some(BoxExtent extent, const MapBounds& bounds) {
  // Coordinates more than kFarthest turns round the Earth are too imprecise.
  constexpr double kFarthest = 1e6, kRounding = 1e-6;
  if (bounds.turn > 0) {
    if (std::max(-extent.x1, extent.x2) > kFarthest * bounds.turn) return true;
    extent.x1 -= kRounding * bounds.turn;
    extent.x2 += kRounding * bounds.turn;
  }
  return may_meet(extent, bounds);
}

}  // namespace

bool may_meet(BoxExtent extent, const MapBounds& bounds) {
  constexpr double kMargin = 0.01;  // edges of maps may be curved
  auto [west, south, east, north] = bounds.sides;
  const double turn = bounds.turn;
  const double high = (north - south) * kMargin;
  if (extent.y2 < south - high || extent.y1 > north + high) return false;
  if (west > east) east += turn;
  if (turn > 0) {
    if (extent.x2 - extent.x1 + east - west >= turn) return true;
    const double away = (extent.x1 + extent.x2) / 2 - (west + east) / 2;
    const double turns = std::remainder(away, turn) - away;
    extent.x1 += turns;
    extent.x2 += turns;
  }
  const double wide = (east - west) * kMargin;
  return extent.x2 >= west - wide && extent.x1 <= east + wide;
}

ExtentTree::ExtentTree(std::vector<Entry> entries)
    : entries_(std::move(entries)) {
  if (!entries_.empty()) build(0, entries_.size());
}

void ExtentTree::build(size_t begin, size_t end) {
  constexpr size_t kMostInLeaf = 16;
  const size_t at = nodes_.size();
  BoxExtent whole = entries_[begin].extent;
  for (size_t i = begin; i < end; ++i) {
    const BoxExtent& one = entries_[i].extent;
    whole = {std::min(whole.x1, one.x1), std::min(whole.y1, one.y1),
             std::max(whole.x2, one.x2), std::max(whole.y2, one.y2)};
  }
  nodes_.push_back({whole, begin, end});
  if (end - begin <= kMostInLeaf) return;
  const bool is_wide = whole.x2 - whole.x1 > whole.y2 - whole.y1;
  const auto middle = [is_wide](const Entry& entry) {
    const BoxExtent& box = entry.extent;
    return is_wide ? box.x1 + box.x2 : box.y1 + box.y2;
  };
  const size_t half = begin + (end - begin) / 2;
  const auto place = [this](size_t i) {
    return entries_.begin() + static_cast<std::ptrdiff_t>(i);
  };
  std::ranges::nth_element(place(begin), place(half), place(end), {}, middle);
  build(begin, half);
  nodes_[at].second = nodes_.size();
  build(half, end);
}

std::vector<size_t> ExtentTree::meeting(
    const std::optional<MapBounds>& bounds) const {
  std::vector<size_t> found, open;
  if (!nodes_.empty()) open.push_back(0);
  while (!open.empty()) {
    const size_t at = open.back();
    const Node& node = nodes_[at];
    open.pop_back();
    if (bounds && !may_hold_some(node.extent, *bounds)) continue;
    if (node.second > 0) {
      open.insert(open.end(), {at + 1, node.second});
      continue;
    }
    for (size_t i = node.begin; i < node.end; ++i) {
      if (!bounds || may_meet(entries_[i].extent, *bounds)) {
        found.push_back(entries_[i].number);
      }
    }
  }
  return found;
}

}  // namespace headroom::labels
