// Target assignment: which anchors at which cells predict which box.
//
// YOLOv5's rule uses labels, anchors and grid sizes only, never a prediction,
// so the loader computes the matches and the training step only reads them. The
// order of matches matters, because the last write to an objectness cell wins.
// On each level, the cells of the centres come first, then their neighbours on
// the left, above, on the right and below. Each of these five groups is ordered
// by anchor.
//
// Computed in the run's precision: float32 and float64 may choose different
// cells if a centre rounds onto a border.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace headroom::loss {

// Number of fields of a match: image, anchor, row, column, class.
inline constexpr int64_t kIndexFields = 5;

// One box of a label, normalised to the network's input image.
struct LabelRow {
  int64_t image = 0;  // position in the batch
  int64_t class_index = 0;
  double cx = 0, cy = 0, w = 0, h = 0;  // 0..1
};

struct LevelGrid {
  int64_t height = 0;  // cells
  int64_t width = 0;
  std::vector<std::pair<double, double>> anchors;  // cells (w, h)
};

// M matches of one level.
struct LevelTargets {
  at::Tensor
      index;       // [M, 5] int64: image, anchor, row (gj), column (gi), class
  at::Tensor box;  // [M, 4]: dx, dy (from the clamped cell), w, h in cells
  at::Tensor anchors;  // [M, 2] in cells
  int64_t size() const { return index.defined() ? index.size(0) : 0; }
};

// REQUIRES: anchor_threshold > 1; scalar_type is float or double.
std::vector<LevelTargets> assign_targets(const std::vector<LabelRow>& labels,
                                         const std::vector<LevelGrid>& grids,
                                         double anchor_threshold,
                                         at::ScalarType scalar_type);

// The matches of a level whose cells are in rows [first_row, first_row + rows),
// in the same order, with rows counted from first_row. Each match belongs to
// one cell, so to one rank of a split image; a cell's last match stays last.
LevelTargets targets_of_rows(const LevelTargets& targets, int64_t first_row,
                             int64_t rows);

}  // namespace headroom::loss
