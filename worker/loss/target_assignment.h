// Target assignment: which anchors at which cells predict which box.
//
// YOLOv5's rule looks at labels, anchors and grid sizes only, never at a
// prediction, so the loader does it and a training step has nothing to decide.
// Emission order matters (in the objectness map the last write wins): per level
// the own cell, then left, up, right, down; inside each, anchor-major.
//
// Arithmetic is in the run's precision: float32 and float64 may choose
// different cells for a centre that rounds onto a border.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace headroom::loss {

// Fields of a match: image, anchor, row, column, class.
inline constexpr int64_t kIndexFields = 5;

// A box of a label, normalised to the image the network sees.
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

// The matches of a level whose cells lie in rows [first_row, first_row + rows)
// of it, in their order, with cells counted from first_row. Each match belongs
// to one cell, hence to one rank of a split image, and the last one of a cell
// stays the last.
LevelTargets targets_of_rows(const LevelTargets& targets, int64_t first_row,
                             int64_t rows);

}  // namespace headroom::loss
