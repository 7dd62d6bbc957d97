#include "worker/loss/place_loss.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/loss/level_loss.h"

namespace headroom::loss {
namespace {

using kernels::CornerBox;

// The mean distance of a side, and its derivatives by the side's logits.
struct Distance {
  double mean = 0;
  std::array<double, kDistanceBins> probabilities{};
  double by_logit(size_t bin) const {
    return probabilities[bin] * (static_cast<double>(bin) - mean);
  }
};

template <typename T>
Distance distance_of(const T* logits) {
  Distance distance;
  const auto most =
      static_cast<double>(*std::max_element(logits, logits + kDistanceBins));
  double sum = 0;
  for (size_t bin = 0; bin < kDistanceBins; ++bin) {
    distance.probabilities[bin] =
        std::exp(static_cast<double>(logits[bin]) - most);
    sum += distance.probabilities[bin];
  }
  for (size_t bin = 0; bin < kDistanceBins; ++bin) {
    distance.probabilities[bin] /= sum;
    distance.mean += static_cast<double>(bin) * distance.probabilities[bin];
  }
  return distance;
}

// The box whose sides have these distances from (x, y).
template <typename T>
CornerBox<T> box_around(double x, double y, const std::array<T, kBoxSides>& d) {
  return {T(x) - d[0], T(y) - d[1], T(x) + d[2], T(y) + d[3]};
}

// An owned place: its level, its cell, and its target.
struct Target {
  int64_t level = 0, image = 0, row = 0, column = 0;
  int64_t class_index = 0;
  double weight = 0;
  CornerBox<double> box;  // the label's, in cells of the level
};

// The loss of one side: cross-entropy of the two bins next to the distance
// `wanted`, which is shared between them. Adds the derivatives by the logits,
// times `scale`, to `gradient`.
double side_loss(const Distance& distance, double wanted, double scale,
                 double* gradient) {
  const double most = static_cast<double>(kDistanceBins) - 1 - 0.01;
  const double target = std::clamp(wanted, 0.0, most);
  const auto low = static_cast<size_t>(target);
  const double high_share = target - static_cast<double>(low);
  const double low_share = 1 - high_share;
  for (size_t bin = 0; bin < kDistanceBins; ++bin) {
    gradient[bin] += scale * distance.probabilities[bin];
  }
  gradient[low] -= scale * low_share;
  gradient[low + 1] -= scale * high_share;
  return -(low_share * std::log(distance.probabilities[low]) +
           high_share * std::log(distance.probabilities[low + 1]));
}

struct BoxTerms {
  double box = 0, dfl = 0;  // without weight and gain
  // Derivatives by the logits of the sides, with both gains, without weight.
  std::array<double, kBoxSides * kDistanceBins> gradient{};
};

template <typename T>
BoxTerms box_terms(const T* logits, const Target& target,
                   const PlaceLossRule& rule) {
  using Number = kernels::Dual<kBoxSides>;
  const double x = static_cast<double>(target.column) + 0.5;
  const double y = static_cast<double>(target.row) + 0.5;
  std::array<Distance, kBoxSides> distances;
  std::array<Number, kBoxSides> means;
  for (size_t side = 0; side < kBoxSides; ++side) {
    distances[side] = distance_of(logits + side * kDistanceBins);
    means[side] = Number::input(distances[side].mean, side);
  }
  const CornerBox<double>& wanted = target.box;
  const Number ciou = kernels::corner_ciou<Number>(
      box_around(x, y, means), {wanted.x1, wanted.y1, wanted.x2, wanted.y2});
  const std::array<double, kBoxSides> sides = {x - wanted.x1, y - wanted.y1,
                                               wanted.x2 - x, wanted.y2 - y};
  BoxTerms terms;
  terms.box = 1 - ciou.value;
  for (size_t side = 0; side < kBoxSides; ++side) {
    double* const gradient = &terms.gradient[side * kDistanceBins];
    for (size_t bin = 0; bin < kDistanceBins; ++bin) {
      gradient[bin] =
          -rule.box_gain * ciou.d[side] * distances[side].by_logit(bin);
    }
    terms.dfl += side_loss(distances[side], sides[side],
                           rule.dfl_gain / kBoxSides, gradient) /
                 kBoxSides;
  }
  return terms;
}

// [n, H, W, fields], dense.
at::Tensor cells_of(const at::Tensor& head) {
  return head.permute({0, 2, 3, 1}).contiguous();
}

// The places of the heads: whole images of one size.
PlaceGrid grid_of(const std::vector<at::Tensor>& heads,
                  const std::vector<int64_t>& strides) {
  std::vector<PlaceLevel> levels;
  for (size_t i = 0; i < heads.size(); ++i) {
    levels.push_back(
        {strides[i], heads[i].size(2), heads[i].size(3), 0, heads[i].size(2)});
  }
  return PlaceGrid(std::move(levels));
}

// Assigns the places of one image.
template <typename T>
class ImageTargets {
 public:
  ImageTargets(const PlaceGrid& grid, const std::vector<at::Tensor>& cells,
               const PlaceLossRule& rule)
      : grid_(grid),
        cells_(cells),
        rule_(rule),
        boxes_(static_cast<size_t>(grid.num_local())),
        scores_(static_cast<size_t>(grid.num_local() * rule.num_classes)) {}

  void assign(int64_t image, const std::vector<LabelRow>& labels,
              std::vector<Target>& targets) {
    if (labels.empty()) return;
    predict(image);
    const std::vector<PlaceLabel<T>> in_pixels = pixel_labels(labels);
    const PlacePredictions<T> predictions = {boxes_.data(), scores_.data(),
                                             rule_.num_classes};
    const auto taken = best_places(grid_, in_pixels, predictions, rule_.places);
    const auto owned =
        owned_places(grid_, in_pixels, predictions, taken, rule_.places);
    const auto maxima = label_maxima(owned, labels.size());
    for (const OwnedPlace<T>& place : owned) {
      const auto label = static_cast<size_t>(place.label);
      targets.push_back(
          target_of(image, place.local, in_pixels[label],
                    static_cast<double>(place_weight(place, maxima[label]))));
    }
  }

 private:
  void predict(int64_t image) {
    const int64_t fields = kBoxSides * kDistanceBins + rule_.num_classes;
    for (size_t i = 0; i < cells_.size(); ++i) {
      const PlaceLevel& level = grid_.levels()[i];
      const int64_t count = level.rows * level.width;
      const T* raw = cells_[i].const_data_ptr<T>() + image * count * fields;
      const auto stride = static_cast<T>(level.stride);
      for (int64_t cell = 0; cell < count; ++cell, raw += fields) {
        const auto local = static_cast<size_t>(grid_.local_begin(i) + cell);
        std::array<T, kBoxSides> d;
        for (size_t side = 0; side < kBoxSides; ++side) {
          d[side] =
              static_cast<T>(distance_of(raw + side * kDistanceBins).mean);
        }
        const CornerBox<T> box =
            box_around(static_cast<double>(cell % level.width) + 0.5,
                       static_cast<double>(cell / level.width) + 0.5, d);
        boxes_[local] = {box.x1 * stride, box.y1 * stride, box.x2 * stride,
                         box.y2 * stride};
        for (int64_t c = 0; c < rule_.num_classes; ++c) {
          scores_[local * static_cast<size_t>(rule_.num_classes) +
                  static_cast<size_t>(c)] =
              1 / (1 + std::exp(-raw[kBoxSides * kDistanceBins + c]));
        }
      }
    }
  }

  std::vector<PlaceLabel<T>> pixel_labels(
      const std::vector<LabelRow>& labels) const {
    const PlaceLevel& level = grid_.levels().front();
    const auto width = static_cast<T>(level.width * level.stride);
    const auto height = static_cast<T>(level.height * level.stride);
    std::vector<PlaceLabel<T>> result;
    for (const LabelRow& label : labels) {
      const T x = static_cast<T>(label.cx) * width;
      const T y = static_cast<T>(label.cy) * height;
      const T half_w = static_cast<T>(label.w) * width / 2;
      const T half_h = static_cast<T>(label.h) * height / 2;
      result.push_back({{x - half_w, y - half_h, x + half_w, y + half_h},
                        label.class_index});
    }
    return result;
  }

  Target target_of(int64_t image, int64_t local, const PlaceLabel<T>& label,
                   double weight) const {
    size_t i = 0;
    while (local >= grid_.local_begin(i + 1)) ++i;
    const PlaceLevel& level = grid_.levels()[i];
    const int64_t cell = local - grid_.local_begin(i);
    const auto stride = static_cast<double>(level.stride);
    const auto in_cells = [stride](T pixels) {
      return static_cast<double>(pixels) / stride;
    };
    return {static_cast<int64_t>(i),
            image,
            cell / level.width,
            cell % level.width,
            label.class_index,
            weight,
            {in_cells(label.box.x1), in_cells(label.box.y1),
             in_cells(label.box.x2), in_cells(label.box.y2)}};
  }

  const PlaceGrid& grid_;
  const std::vector<at::Tensor>& cells_;
  const PlaceLossRule& rule_;
  std::vector<CornerBox<T>> boxes_;
  std::vector<T> scores_;
};

std::vector<Target> targets_of(const PlaceGrid& grid,
                               const std::vector<at::Tensor>& cells,
                               const std::vector<LabelRow>& labels,
                               const PlaceLossRule& rule) {
  const int64_t images = cells.front().size(0);
  std::vector<std::vector<LabelRow>> of_image(static_cast<size_t>(images));
  for (const LabelRow& label : labels) {
    of_image[static_cast<size_t>(label.image)].push_back(label);
  }
  std::vector<Target> targets;
  AT_DISPATCH_FLOATING_TYPES(
      cells.front().scalar_type(), "place assignment", [&] {
        ImageTargets<scalar_t> assignment(grid, cells, rule);
        for (int64_t image = 0; image < images; ++image) {
          assignment.assign(image, of_image[static_cast<size_t>(image)],
                            targets);
        }
      });
  return targets;
}

template <typename T>
T* logits_at(const at::Tensor& cells, const Target& target) {
  return cells.data_ptr<T>() +
         ((target.image * cells.size(1) + target.row) * cells.size(2) +
          target.column) *
             cells.size(3);
}

at::Tensor class_logits(const at::Tensor& cells) {
  constexpr int64_t kFirst = kBoxSides * kDistanceBins;
  return cells.narrow(3, kFirst, cells.size(3) - kFirst);
}

// box, cls and dfl without gains, then the sum of weights.
std::array<double, 4> sums_of(const std::vector<at::Tensor>& cells,
                              const std::vector<Target>& targets,
                              const PlaceLossRule& rule) {
  std::array<double, 4> sums{};
  for (const at::Tensor& level : cells) {
    sums[1] += entropy_sum(class_logits(level), 0, {1, 0}).item<double>();
  }
  AT_DISPATCH_FLOATING_TYPES(cells.front().scalar_type(), "place loss", [&] {
    for (const Target& target : targets) {
      const scalar_t* const logits =
          logits_at<scalar_t>(cells[static_cast<size_t>(target.level)], target);
      const BoxTerms terms = box_terms(logits, target, rule);
      sums[0] += target.weight * terms.box;
      sums[2] += target.weight * terms.dfl;
      sums[1] -= target.weight *
                 static_cast<double>(
                     logits[kBoxSides * kDistanceBins + target.class_index]);
      sums[3] += target.weight;
    }
  });
  return sums;
}

// The gradient of a level by `scale` times the sum of its terms with gains.
at::Tensor level_gradient(const at::Tensor& cells, int64_t level,
                          const std::vector<Target>& targets, double scale,
                          const PlaceLossRule& rule) {
  at::Tensor gradient = at::zeros(cells.sizes(), cells.options());
  at::Tensor of_classes = class_logits(gradient);
  at::sigmoid_out(of_classes, class_logits(cells));
  of_classes.mul_(scale * rule.cls_gain);
  AT_DISPATCH_FLOATING_TYPES(cells.scalar_type(), "place loss backward", [&] {
    for (const Target& target : targets) {
      if (target.level != level) continue;
      const BoxTerms terms =
          box_terms(logits_at<scalar_t>(cells, target), target, rule);
      scalar_t* const out = logits_at<scalar_t>(gradient, target);
      const double weight = scale * target.weight;
      for (size_t i = 0; i < terms.gradient.size(); ++i) {
        out[i] = static_cast<scalar_t>(weight * terms.gradient[i]);
      }
      out[kBoxSides * kDistanceBins + target.class_index] -=
          static_cast<scalar_t>(weight * rule.cls_gain);
    }
  });
  return gradient;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class PlaceLossFunction : public torch::autograd::Function<PlaceLossFunction> {
 public:
  // Keeps what backward needs beside the logits.
  struct Kept : torch::CustomClassHolder {
    std::vector<Target> targets;
    PlaceLossRule rule;
  };

  static variable_list forward(AutogradContext* ctx, at::TensorList heads,
                               const PlaceGrid* grid,
                               const std::vector<LabelRow>* labels,
                               const PlaceLossRule* rule) {
    const variable_list cells = heads.vec();
    const auto kept = c10::make_intrusive<Kept>();
    kept->rule = *rule;
    kept->targets = targets_of(*grid, cells, *labels, *rule);
    const std::array<double, 4> sums = sums_of(cells, kept->targets, *rule);
    at::Tensor items = at::empty({4}, at::kDouble);
    double* const out = items.data_ptr<double>();
    out[0] = rule->box_gain * sums[0];
    out[1] = rule->cls_gain * sums[1];
    out[2] = rule->dfl_gain * sums[2];
    out[3] = sums[3];
    at::Tensor total = at::empty({}, at::kDouble);
    total.fill_(rule->factor * rule->images * (out[0] + out[1] + out[2]));
    ctx->save_for_backward(cells);
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    ctx->mark_non_differentiable({items});
    return {total, items};
  }

  static variable_list backward(AutogradContext* ctx,
                                const variable_list& grads) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(
        ctx->saved_data["kept"].toCapsule());
    const PlaceLossRule& rule = kept->rule;
    const double scale = grads[0].item<double>() * rule.factor * rule.images;
    const variable_list cells = ctx->get_saved_variables();
    variable_list gradients;
    for (size_t level = 0; level < cells.size(); ++level) {
      gradients.push_back(level_gradient(cells[level],
                                         static_cast<int64_t>(level),
                                         kept->targets, scale, rule));
    }
    gradients.resize(cells.size() + 3);  // no gradients of the other arguments
    return gradients;
  }
};

}  // namespace

PlaceLoss place_loss(const std::vector<at::Tensor>& heads,
                     const std::vector<int64_t>& strides,
                     const std::vector<LabelRow>& labels,
                     const PlaceLossRule& rule) {
  HEADROOM_CHECK(!heads.empty() && heads.size() == strides.size(),
                 cat(heads.size(), " heads, ", strides.size(), " strides"));
  variable_list cells;
  for (const at::Tensor& head : heads) {
    HEADROOM_CHECK(head.size(1) == kBoxSides * kDistanceBins + rule.num_classes,
                   cat("a head of ", head.size(1), " channels for ",
                       rule.num_classes, " classes"));
    cells.push_back(cells_of(head));
  }
  const PlaceGrid grid = grid_of(heads, strides);
  const variable_list results =
      PlaceLossFunction::apply(at::TensorList(cells), &grid, &labels, &rule);
  return {results[0], results[1]};
}

}  // namespace headroom::loss
