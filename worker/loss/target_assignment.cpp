#include "worker/loss/target_assignment.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::loss {
namespace {

// column of the cell's row in LevelTargets::index
constexpr int64_t kCellRow = 2;

// A pair of label and anchor that passed the size test; x, y, w and h are in
// cells of the level.
template <typename T>
struct Pair {
  const LabelRow* label;
  int64_t anchor;
  T x, y, w, h;
};

template <typename T>
struct Match {
  const Pair<T>* pair;
  int64_t row, column;
};

// Distance to the lower cell border, as PyTorch's x % 1.
template <typename T>
T fraction(T x) {
  return x - std::floor(x);
}

template <typename T>
int64_t cell(T position, int64_t size) {
  return std::clamp<int64_t>(static_cast<int64_t>(position), 0, size - 1);
}

template <typename T>
std::vector<Pair<T>> keep_pairs(const std::vector<LabelRow>& labels,
                                const LevelGrid& grid, T threshold) {
  std::vector<Pair<T>> pairs;
  const T width = static_cast<T>(grid.width);
  const T height = static_cast<T>(grid.height);
  for (size_t a = 0; a < grid.anchors.size(); ++a) {
    const T anchor_w = static_cast<T>(grid.anchors[a].first);
    const T anchor_h = static_cast<T>(grid.anchors[a].second);
    for (const LabelRow& label : labels) {
      const T w = static_cast<T>(label.w) * width;
      const T h = static_cast<T>(label.h) * height;
      const T ratio_w = w / anchor_w, ratio_h = h / anchor_h;
      const T worst = std::max(std::max(ratio_w, 1 / ratio_w),
                               std::max(ratio_h, 1 / ratio_h));
      if (worst < threshold)
        pairs.push_back({&label, static_cast<int64_t>(a),
                         static_cast<T>(label.cx) * width,
                         static_cast<T>(label.cy) * height, w, h});
    }
  }
  return pairs;
}

// Returns the matches of the pairs: first the cell of each pair's centre, then
// the neighbouring cells near enough to the centre, one direction after the
// other.
template <typename T>
std::vector<Match<T>> spread(const std::vector<Pair<T>>& pairs,
                             const LevelGrid& grid) {
  const T half = static_cast<T>(0.5);
  const T width = static_cast<T>(grid.width);
  const T height = static_cast<T>(grid.height);
  std::vector<Match<T>> matches;
  matches.reserve(pairs.size() * 3);
  const auto add = [&](const Pair<T>& pair, T x, T y) {
    matches.push_back({&pair, cell(y, grid.height), cell(x, grid.width)});
  };
  const auto near_low = [half](T x) { return fraction(x) < half && x > 1; };
  for (const Pair<T>& p : pairs) add(p, p.x, p.y);
  for (const Pair<T>& p : pairs)
    if (near_low(p.x)) add(p, p.x - half, p.y);
  for (const Pair<T>& p : pairs)
    if (near_low(p.y)) add(p, p.x, p.y - half);
  for (const Pair<T>& p : pairs)
    if (near_low(width - p.x)) add(p, p.x + half, p.y);
  for (const Pair<T>& p : pairs)
    if (near_low(height - p.y)) add(p, p.x, p.y + half);
  return matches;
}

template <typename T>
LevelTargets to_tensors(const std::vector<Match<T>>& matches,
                        const LevelGrid& grid, at::ScalarType scalar_type) {
  const auto size = static_cast<int64_t>(matches.size());
  const MemoryCategoryScope scope(MemoryCategory::kLoss);
  LevelTargets targets;
  targets.index = at::empty({size, 5}, at::kLong);
  targets.box = at::empty({size, 4}, scalar_type);
  targets.anchors = at::empty({size, 2}, scalar_type);
  int64_t* index = targets.index.mutable_data_ptr<int64_t>();
  T* box = targets.box.mutable_data_ptr<T>();
  T* anchors = targets.anchors.mutable_data_ptr<T>();
  for (const Match<T>& match : matches) {
    const Pair<T>& pair = *match.pair;
    const std::array<int64_t, 5> where = {pair.label->image, pair.anchor,
                                          match.row, match.column,
                                          pair.label->class_index};
    index = std::copy(where.begin(), where.end(), index);
    *box++ = pair.x - static_cast<T>(match.column);
    *box++ = pair.y - static_cast<T>(match.row);
    *box++ = pair.w;
    *box++ = pair.h;
    const auto& anchor = grid.anchors[static_cast<size_t>(pair.anchor)];
    *anchors++ = static_cast<T>(anchor.first);
    *anchors++ = static_cast<T>(anchor.second);
  }
  return targets;
}

template <typename T>
std::vector<LevelTargets> assign(const std::vector<LabelRow>& labels,
                                 const std::vector<LevelGrid>& grids,
                                 double anchor_threshold,
                                 at::ScalarType scalar_type) {
  std::vector<LevelTargets> targets;
  for (const LevelGrid& grid : grids) {
    const auto pairs =
        keep_pairs(labels, grid, static_cast<T>(anchor_threshold));
    targets.push_back(to_tensors(spread(pairs, grid), grid, scalar_type));
  }
  return targets;
}

}  // namespace

std::vector<LevelTargets> assign_targets(const std::vector<LabelRow>& labels,
                                         const std::vector<LevelGrid>& grids,
                                         double anchor_threshold,
                                         at::ScalarType scalar_type) {
  HEADROOM_CHECK(anchor_threshold > 1,
                 cat("anchor_threshold ", anchor_threshold));
  HEADROOM_CHECK(scalar_type == at::kFloat || scalar_type == at::kDouble,
                 std::string("targets in ") + at::toString(scalar_type));
  for (const LabelRow& label : labels) {
    // Rounding may move a box slightly over the edge. A larger deviation is a
    // bug, and its cell might not even be a valid integer.
    bool is_sane = true;
    for (const double value : {label.cx, label.cy, label.w, label.h})
      is_sane = is_sane && value >= -1 && value <= 2;
    HEADROOM_CHECK(is_sane, cat("label of image ", label.image, ": ", label.cx,
                                " ", label.cy, " ", label.w, " ", label.h));
  }
  return scalar_type == at::kDouble
             ? assign<double>(labels, grids, anchor_threshold, scalar_type)
             : assign<float>(labels, grids, anchor_threshold, scalar_type);
}

LevelTargets targets_of_rows(const LevelTargets& targets, int64_t first_row,
                             int64_t rows) {
  const at::Tensor cell_rows = targets.index.select(1, kCellRow).contiguous();
  const int64_t* row = cell_rows.const_data_ptr<int64_t>();
  std::vector<int64_t> kept;
  for (int64_t match = 0; match < targets.size(); ++match)
    if (row[match] >= first_row && row[match] < first_row + rows)
      kept.push_back(match);
  const at::Tensor positions = at::tensor(kept, at::kLong);
  LevelTargets owned;
  owned.index = at::index_select(targets.index, 0, positions);
  owned.index.select(1, kCellRow).sub_(first_row);
  owned.box = at::index_select(targets.box, 0, positions);
  owned.anchors = at::index_select(targets.anchors, 0, positions);
  return owned;
}

}  // namespace headroom::loss
