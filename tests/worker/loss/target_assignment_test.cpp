#include "worker/loss/target_assignment.h"

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::loss {
namespace {

using Row = std::array<int64_t, 5>;  // image, anchor, row, column, class

LevelGrid unit_grid() { return {4, 4, {{1.0, 1.0}}}; }

// A box of one cell's size, centred at (x, y) in cells of a 4x4 grid.
LabelRow at_cell(double x, double y) { return {0, 0, x / 4, y / 4, .25, .25}; }

std::vector<Row> rows_of(const LevelTargets& targets) {
  const auto index = targets.index.accessor<int64_t, 2>();
  std::vector<Row> rows;
  for (int64_t i = 0; i < targets.size(); ++i)
    rows.push_back(
        {index[i][0], index[i][1], index[i][2], index[i][3], index[i][4]});
  return rows;
}

std::vector<Row> assign(const std::vector<LabelRow>& labels, double threshold,
                        const LevelGrid& grid = unit_grid()) {
  return rows_of(assign_targets(labels, {grid}, threshold, at::kDouble)[0]);
}

TEST(TargetAssignmentTest, OwnCellThenLeftAndUp) {
  EXPECT_EQ(
      assign({at_cell(2.25, 2.25)}, 4),
      (std::vector<Row>{{0, 0, 2, 2, 0}, {0, 0, 2, 1, 0}, {0, 0, 1, 2, 0}}));
}

TEST(TargetAssignmentTest, RightAndDown) {
  EXPECT_EQ(
      assign({at_cell(1.75, 1.75)}, 4),
      (std::vector<Row>{{0, 0, 1, 1, 0}, {0, 0, 1, 2, 0}, {0, 0, 2, 1, 0}}));
}

TEST(TargetAssignmentTest, NoNeighbourOutsideTheGrid) {
  EXPECT_EQ(assign({at_cell(0.25, 3.75)}, 4),
            (std::vector<Row>{{0, 0, 3, 0, 0}}));
}

TEST(TargetAssignmentTest, CentreOnAGridLineEntersItsOwnCellAgain) {
  // Both side tests hold: left gives column 1, right gives column 2 once more.
  EXPECT_EQ(
      assign({at_cell(2, 1.5)}, 4),
      (std::vector<Row>{{0, 0, 1, 2, 0}, {0, 0, 1, 1, 0}, {0, 0, 1, 2, 0}}));
}

TEST(TargetAssignmentTest, CentreOnTheFarBorderIsClamped) {
  const auto targets =
      assign_targets({at_cell(4, 3.5)}, {unit_grid()}, 4, at::kDouble);
  EXPECT_EQ(rows_of(targets[0])[0], (Row{0, 0, 3, 3, 0}));
  // The distance is measured from the clamped cell.
  EXPECT_EQ(targets[0].box[0][0].item<double>(), 1.0);
}

TEST(TargetAssignmentTest, RatioMustBeBelowTheThreshold) {
  const LabelRow wide{0, 0, .4, .4, 1, .25};  // four cells by one
  EXPECT_TRUE(assign({wide}, 4).empty());
  EXPECT_FALSE(assign({wide}, 4.001).empty());
}

TEST(TargetAssignmentTest, BoxWithoutExtentMatchesNothing) {
  EXPECT_TRUE(
      assign({{0, 0, .4, .4, 0, .25}, {0, 0, .4, .4, 0, 0}}, 4).empty());
}

TEST(TargetAssignmentTest, AnchorMajorInsideABlock) {
  LevelGrid grid = unit_grid();
  grid.anchors.push_back({1.5, 1.5});
  const std::vector<LabelRow> labels = {at_cell(0.4, 0.4),
                                        {1, 7, .9, .9, .2, .2}};
  EXPECT_EQ(
      assign(labels, 4, grid),
      (std::vector<Row>{
          {0, 0, 0, 0, 0}, {1, 0, 3, 3, 7}, {0, 1, 0, 0, 0}, {1, 1, 3, 3, 7}}));
}

TEST(TargetAssignmentTest, PublishedCounts) {
  // The example of the reference's documentation: three levels at 128 px.
  const std::vector<LabelRow> labels = {{0, 0, .30, .40, .20, .25},
                                        {0, 1, .62, .55, .50, .40},
                                        {1, 1, .5, .5, .9, .9},
                                        {1, 0, .999, .02, .05, .06}};
  const std::vector<LevelGrid> grids = {
      {16, 16, {{1.25, 1.625}, {2, 3.75}, {4.125, 2.875}}},
      {8, 8, {{1.875, 3.8125}, {3.875, 2.8125}, {3.6875, 7.4375}}},
      {4, 4, {{3.625, 2.8125}, {4.875, 6.1875}, {11.65625, 10.1875}}}};
  const auto targets = assign_targets(labels, grids, 4, at::kFloat);
  EXPECT_EQ(targets[0].size(), 14);
  EXPECT_EQ(targets[1].size(), 33);
  EXPECT_EQ(targets[2].size(), 21);
}

TEST(TargetAssignmentTest, NoLabelsGiveEmptyTensors) {
  const auto targets = assign_targets({}, {unit_grid()}, 4, at::kFloat);
  EXPECT_EQ(targets[0].index.sizes(), (at::IntArrayRef{0, 5}));
  EXPECT_EQ(targets[0].box.sizes(), (at::IntArrayRef{0, 4}));
  EXPECT_EQ(targets[0].box.scalar_type(), at::kFloat);
}

// The rows [0, 4) of one level are divided over two ranks. Together the ranks
// have all matches, each once and in order.
TEST(TargetAssignmentTest, MatchesGoToTheOwnersOfTheirRows) {
  LevelGrid grid = unit_grid();
  grid.anchors.push_back({1.5, 1.5});
  const LevelTargets whole = assign_targets(
      {at_cell(0.4, 0.4), at_cell(1.6, 1.6), at_cell(1.6, 1.6), at_cell(3, 3)},
      {grid}, 4, at::kDouble)[0];
  const LevelTargets upper = targets_of_rows(whole, 0, 1);
  const LevelTargets lower = targets_of_rows(whole, 1, 3);
  EXPECT_GT(upper.size(), 0);
  EXPECT_GT(lower.size(), 0);
  EXPECT_EQ(upper.size() + lower.size(), whole.size());
  int64_t next_upper = 0, next_lower = 0;
  for (int64_t i = 0; i < whole.size(); ++i) {
    const int64_t row = whole.index[i][2].item<int64_t>();
    const LevelTargets& owner = row < 1 ? upper : lower;
    const int64_t at = row < 1 ? next_upper++ : next_lower++;
    at::Tensor expected = whole.index[i].clone();
    expected[2] -= row < 1 ? 0 : 1;
    EXPECT_TRUE(at::equal(owner.index[at], expected)) << i;
    EXPECT_TRUE(at::equal(owner.box[at], whole.box[i])) << i;
    EXPECT_TRUE(at::equal(owner.anchors[at], whole.anchors[i])) << i;
  }
}

TEST(TargetAssignmentTest, ARankMayOwnNoMatch) {
  const LevelTargets whole =
      assign_targets({at_cell(0.4, 0.4)}, {unit_grid()}, 4, at::kFloat)[0];
  const LevelTargets none = targets_of_rows(whole, 2, 2);
  EXPECT_EQ(none.index.sizes(), (at::IntArrayRef{0, 5}));
  EXPECT_EQ(none.box.sizes(), (at::IntArrayRef{0, 4}));
  EXPECT_EQ(none.anchors.sizes(), (at::IntArrayRef{0, 2}));
  EXPECT_EQ(none.box.scalar_type(), at::kFloat);
}

TEST(TargetAssignmentTest, InsaneLabelsAreRefused) {
  const double nan = std::nan("");
  for (const LabelRow& label :
       {LabelRow{0, 0, nan, .5, .1, .1}, LabelRow{0, 0, .5, .5, .1, nan},
        LabelRow{0, 0, 1e30, .5, .1, .1}})
    EXPECT_THROW(assign_targets({label}, {unit_grid()}, 4, at::kFloat),
                 CheckFailure);
}

}  // namespace
}  // namespace headroom::loss
