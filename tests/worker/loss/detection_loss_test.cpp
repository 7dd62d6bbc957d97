#include "worker/loss/detection_loss.h"

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::loss {
namespace {

// The example of the reference's documentation: two images of 128 px, two
// classes.
const std::vector<LabelRow>& example_labels() {
  static const std::vector<LabelRow> labels = {{0, 0, .30, .40, .20, .25},
                                               {0, 1, .62, .55, .50, .40},
                                               {1, 1, .5, .5, .9, .9},
                                               {1, 0, .999, .02, .05, .06}};
  return labels;
}

const std::vector<LevelGrid>& example_grids() {
  static const std::vector<LevelGrid> grids = {
      {16, 16, {{1.25, 1.625}, {2, 3.75}, {4.125, 2.875}}},
      {8, 8, {{1.875, 3.8125}, {3.875, 2.8125}, {3.6875, 7.4375}}},
      {4, 4, {{3.625, 2.8125}, {4.875, 6.1875}, {11.65625, 10.1875}}}};
  return grids;
}

// sin(1 + image + 2 anchor + 3 row + 5 column + 7 field + 11 level)
std::vector<at::Tensor> example_heads(int64_t images) {
  std::vector<at::Tensor> heads;
  for (size_t level = 0; level < example_grids().size(); ++level) {
    const LevelGrid& grid = example_grids()[level];
    at::Tensor head =
        at::empty({images, 3, grid.height, grid.width, 7}, at::kDouble);
    double* value = head.mutable_data_ptr<double>();
    for (int64_t b = 0; b < images; ++b)
      for (int64_t a = 0; a < 3; ++a)
        for (int64_t j = 0; j < grid.height; ++j)
          for (int64_t i = 0; i < grid.width; ++i)
            for (int64_t c = 0; c < 7; ++c)
              *value++ = std::sin(
                  static_cast<double>(1 + b + 2 * a + 3 * j + 5 * i + 7 * c +
                                      11 * static_cast<int64_t>(level)));
    heads.push_back(head);
  }
  return heads;
}

struct Part {
  std::vector<at::Tensor> heads;
  std::vector<LevelTargets> targets;
};

// Images [begin, end) of the example, as a micro-batch.
Part part_of_example(int64_t begin, int64_t end) {
  Part part;
  for (const at::Tensor& head : example_heads(2))
    part.heads.push_back(
        head.slice(0, begin, end).clone().requires_grad_(true));
  std::vector<LabelRow> labels;
  for (LabelRow label : example_labels()) {
    if (label.image < begin || label.image >= end) continue;
    label.image -= begin;
    labels.push_back(label);
  }
  part.targets = assign_targets(labels, example_grids(), 4, at::kDouble);
  return part;
}

GlobalCounts example_counts() { return {2, {14, 33, 21}}; }

LossGains example_gains() { return scale_gains({}, 3, 2, 128, 0); }

DetectionLoss loss_of(const Part& part,
                      const LossGains& gains = example_gains()) {
  return detection_loss(part.heads, part.targets, example_counts(), gains);
}

TEST(DetectionLossTest, PublishedExample) {
  const DetectionLoss loss = loss_of(part_of_example(0, 2));
  EXPECT_NEAR(loss.items[0].item<double>(), .1202265, 1e-7);
  EXPECT_NEAR(loss.items[1].item<double>(), .1626678, 1e-7);
  EXPECT_NEAR(loss.items[2].item<double>(), .0284748, 1e-7);
  EXPECT_NEAR(loss.total.item<double>(), .6227383, 1e-7);
  EXPECT_EQ(loss.total.dim(), 0);

  Part zeros = part_of_example(0, 2);
  for (at::Tensor& head : zeros.heads) head = at::zeros_like(head);
  const DetectionLoss flat = loss_of(zeros);
  EXPECT_NEAR(flat.items[0].item<double>(), .1035457, 1e-7);
  EXPECT_NEAR(flat.items[1].item<double>(), .1497198, 1e-7);
  EXPECT_NEAR(flat.items[2].item<double>(), .0259930, 1e-7);
  EXPECT_NEAR(flat.total.item<double>(), .5585170, 1e-7);
}

TEST(DetectionLossTest, PartsAddUpToTheWhole) {
  const Part whole = part_of_example(0, 2);
  const DetectionLoss expected = loss_of(whole);
  expected.total.backward();

  double total = 0;
  at::Tensor items = at::zeros({3}, at::kDouble);
  std::vector<std::vector<at::Tensor>> gradients(3);
  for (const auto& [begin, end] :
       std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 1}, {1, 2}}) {
    const Part part = part_of_example(begin, end);
    const DetectionLoss loss = loss_of(part);
    loss.total.backward();
    total += loss.total.item<double>();
    items.add_(loss.items);
    for (size_t i = 0; i < 3; ++i) gradients[i].push_back(part.heads[i].grad());
  }
  EXPECT_NEAR(total, expected.total.item<double>(), 1e-14);
  EXPECT_TRUE(at::allclose(items, expected.items, 1e-13, 0));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(at::cat(gradients[i]), whole.heads[i].grad(),
                             1e-12, 1e-18))
        << i;
}

TEST(DetectionLossTest, EqualClassWeightsAreOneWeight) {
  LossGains one = example_gains();
  one.cls_pos_weight = 1.7;
  LossGains each = example_gains();
  weigh_classes({1.7, 1.7}, each);
  EXPECT_TRUE(each.class_weights.empty());
  EXPECT_EQ(each.cls_pos_weight, 1.7);
  EXPECT_EQ(loss_of(part_of_example(0, 2), one).total.item<double>(),
            loss_of(part_of_example(0, 2), each).total.item<double>());
}

// The class term is linear in the positive weights, and the weight of a class
// only changes the terms of that class's logits.
TEST(DetectionLossTest, ClassWeightsWeighTheirClass) {
  for (const double gamma : {0.0, 1.5}) {
    for (const double smoothed : {0.0, 0.1}) {
      const auto result = [&](const std::vector<double>& weights) {
        LossGains gains = scale_gains({}, 3, 2, 128, smoothed);
        gains.focal_gamma = gamma;
        weigh_classes(weights, gains);
        const Part part = part_of_example(0, 2);
        const DetectionLoss loss = loss_of(part, gains);
        loss.total.backward();
        return std::pair(loss.items, part.heads[0].grad());
      };
      const auto [both, both_gradient] = result({3, 3});
      const auto [none, none_gradient] = result({1, 1});
      const auto [first, first_gradient] = result({3, 1});
      const auto [second, second_gradient] = result({1, 3});
      EXPECT_TRUE(at::allclose(first + second, both + none, 1e-12, 0));
      EXPECT_GT(first[2].item<double>(), none[2].item<double>());
      EXPECT_GT(second[2].item<double>(), none[2].item<double>());
      EXPECT_TRUE(at::allclose(first_gradient.select(4, 5),
                               both_gradient.select(4, 5), 1e-12, 1e-18));
      EXPECT_TRUE(at::allclose(first_gradient.select(4, 6),
                               none_gradient.select(4, 6), 1e-12, 1e-18));
      EXPECT_TRUE(at::allclose(second_gradient.select(4, 6),
                               both_gradient.select(4, 6), 1e-12, 1e-18));
      EXPECT_FALSE(at::allclose(both_gradient.select(4, 5),
                                none_gradient.select(4, 5), 1e-6, 0));
    }
  }
}

TEST(DetectionLossTest, GradientFollowsTheIncomingOne) {
  const Part once = part_of_example(0, 2);
  loss_of(once).total.backward();
  const Part thrice = part_of_example(0, 2);
  const DetectionLoss loss = loss_of(thrice);
  loss.total.backward(at::full({}, 3.0, at::kDouble));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(at::allclose(thrice.heads[i].grad(),
                             once.heads[i].grad().mul(3), 1e-14, 0));
}

TEST(DetectionLossTest, GradientMatchesDifferences) {
  // Differences are taken for the objectness and class logits of matched rows,
  // since their targets do not depend on the logits. They are not taken for the
  // box fields, which also change the objectness target through the CIoU.
  const Part part = part_of_example(0, 2);
  loss_of(part).total.backward();
  const auto index = part.targets[1].index.accessor<int64_t, 2>();
  for (const int64_t field : {4, 5, 6}) {
    const int64_t row = 7;
    const auto value_at = [&](double shift) {
      Part moved = part_of_example(0, 2);
      const at::NoGradGuard no_grad;
      moved.heads[1]
          .select(0, index[row][0])
          .select(0, index[row][1])
          .select(0, index[row][2])
          .select(0, index[row][3])
          .select(0, field)
          .add_(shift);
      return loss_of(moved).total.item<double>();
    };
    const double slope = (value_at(1e-5) - value_at(-1e-5)) / 2e-5;
    const double actual = part.heads[1]
                              .grad()[index[row][0]][index[row][1]]
                                     [index[row][2]][index[row][3]][field]
                              .item<double>();
    EXPECT_NEAR(actual, slope, 1e-9) << field;
    EXPECT_NE(actual, 0) << field;
  }
}

TEST(DetectionLossTest, MemoryLayoutChangesNothing) {
  const Part plain = part_of_example(0, 2);
  const DetectionLoss expected = loss_of(plain);
  expected.total.backward();

  // The layout of a channels-last convolution: fields next to each other, then
  // anchors, columns, rows.
  Part strided = part_of_example(0, 2);
  for (at::Tensor& head : strided.heads)
    head = head.detach()
               .permute({0, 2, 3, 1, 4})
               .contiguous()
               .permute({0, 3, 1, 2, 4})
               .requires_grad_(true);
  const DetectionLoss loss = loss_of(strided);
  loss.total.backward();
  EXPECT_TRUE(at::equal(loss.total, expected.total));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(at::equal(strided.heads[i].grad(), plain.heads[i].grad()));
    EXPECT_EQ(strided.heads[i].grad().strides(), strided.heads[i].strides());
  }
}

TEST(DetectionLossTest, ThreadsChangeNothing) {
  const int threads = at::get_num_threads();
  const Part one = part_of_example(0, 2), two = part_of_example(0, 2);
  at::set_num_threads(1);
  const DetectionLoss first = loss_of(one);
  first.total.backward();
  at::set_num_threads(2);
  const DetectionLoss second = loss_of(two);
  second.total.backward();
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(first.total, second.total));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(at::equal(one.heads[i].grad(), two.heads[i].grad()));
}

TEST(DetectionLossTest, NoImagesHere) {
  const Part part = part_of_example(1, 1);
  const DetectionLoss loss = loss_of(part);
  EXPECT_EQ(loss.total.item<double>(), 0);
  loss.total.backward();
  for (const at::Tensor& head : part.heads)
    EXPECT_EQ(head.grad().sizes(), head.sizes());
}

TEST(DetectionLossTest, NoMatchesAnywhere) {
  Part part = part_of_example(0, 2);
  part.targets = assign_targets({}, example_grids(), 4, at::kDouble);
  const DetectionLoss loss =
      detection_loss(part.heads, part.targets, {2, {0, 0, 0}}, example_gains());
  loss.total.backward();
  EXPECT_EQ(loss.items[0].item<double>(), 0);
  EXPECT_GT(loss.items[1].item<double>(), 0);
  EXPECT_EQ(loss.items[2].item<double>(), 0);
  // Of all fields, only objectness has a gradient.
  EXPECT_EQ(part.heads[0].grad().select(4, 0).abs().sum().item<double>(), 0);
  EXPECT_GT(part.heads[0].grad().select(4, 4).abs().sum().item<double>(), 0);
}

TEST(DetectionLossTest, LastRowOwnsTheCell) {
  // Two boxes in one cell under one anchor; the later one fits badly, and its
  // CIoU alone becomes the target.
  const std::vector<LevelGrid> grids = {{4, 4, {{1.0, 1.0}}}};
  const LabelRow good{0, 0, .125 + .25, .125 + .25, .25, .25};
  LabelRow bad = good;
  bad.w = .8;
  LossGains gains = scale_gains({}, 1, 1, 640, 0);
  gains.box = 0;
  const auto loss_with = [&](const std::vector<LabelRow>& labels) {
    const auto targets = assign_targets(labels, grids, 4, at::kDouble);
    const at::Tensor head = at::full({1, 1, 4, 4, 6}, 0.5, at::kDouble);
    return detection_loss({head}, targets, {1, {targets[0].size()}}, gains)
        .total.item<double>();
  };
  EXPECT_EQ(loss_with({good, bad}), loss_with({bad}));
  EXPECT_EQ(loss_with({bad, good}), loss_with({good}));
  EXPECT_NE(loss_with({bad}), loss_with({good}));
}

TEST(DetectionLossTest, NonFinitePredictionsShow) {
  for (const int64_t field : {0, 4, 5}) {
    Part part = part_of_example(0, 2);
    {
      const at::NoGradGuard no_grad;
      part.heads[1].select(4, field).fill_(
          std::numeric_limits<double>::quiet_NaN());
    }
    EXPECT_TRUE(std::isnan(loss_of(part).total.item<double>())) << field;
  }
}

TEST(DetectionLossTest, MismatchedInputsAreRefused) {
  const Part part = part_of_example(0, 2);
  EXPECT_THROW(detection_loss(part.heads, part.targets, {2, {13, 33, 21}},
                              example_gains()),
               CheckFailure);
  EXPECT_THROW(
      detection_loss(part.heads, part.targets, {2, {14, 33}}, example_gains()),
      CheckFailure);
  EXPECT_THROW(detection_loss(part.heads, part.targets, example_counts(),
                              scale_gains({}, 3, 5, 128, 0)),
               CheckFailure);
  const Part one_image = part_of_example(0, 1);
  EXPECT_THROW(detection_loss(one_image.heads, part.targets, example_counts(),
                              example_gains()),
               CheckFailure);
  EXPECT_THROW(scale_gains({}, 6, 80, 640, 0), Error);
}

}  // namespace
}  // namespace headroom::loss
