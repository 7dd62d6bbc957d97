#include "worker/loss/place_loss.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/place_math.h"
#include "worker/loss/level_loss.h"

namespace headroom::loss {
namespace {

using kernels::CornerBox;
using kernels::SideDistance;

// An owned place: its level, its cell, and its target.
struct Target {
  size_t level = 0;
  int64_t image = 0, cell = 0;
  int64_t width = 0;  // cells in a row of the level
  int64_t class_index = 0;
  double weight = 0;
  CornerBox<double> box;  // the label's, in cells of the level
};

struct BoxTerms {
  double box = 0, dfl = 0;  // without weight and gain
  // Derivatives by the logits of the sides, with both gains, without weight.
  std::array<double, kBoxSides * kDistanceBins> gradient{};
};

template <typename T>
BoxTerms box_terms(const T* logits, const Target& target,
                   const PlaceLossRule& rule) {
  using Number = kernels::Dual<kBoxSides>;
  const double x = static_cast<double>(target.cell % target.width) + 0.5;
  const double y = static_cast<double>(target.cell / target.width) + 0.5;
  std::array<SideDistance, kBoxSides> distances;
  std::array<Number, kBoxSides> means;
  for (size_t side = 0; side < kBoxSides; ++side) {
    distances[side] = kernels::distance_of(logits + side * kDistanceBins);
    means[side] = Number::input(distances[side].mean, side);
  }
  const Number ciou = kernels::place_ciou(x, y, means.data(), target.box);
  BoxTerms terms;
  terms.box = 1 - ciou.value;
  for (size_t side = 0; side < kBoxSides; ++side) {
    double* const gradient = &terms.gradient[side * kDistanceBins];
    for (int64_t bin = 0; bin < kDistanceBins; ++bin) {
      gradient[bin] =
          -rule.box_gain * ciou.d[side] * distances[side].by_logit(bin);
    }
    const double wanted =
        kernels::wanted_distance(x, y, static_cast<int64_t>(side), target.box);
    terms.dfl += kernels::side_loss(distances[side], wanted,
                                    rule.dfl_gain / kBoxSides, gradient) /
                 kBoxSides;
  }
  return terms;
}

// The maps of all levels: box and cls of each, dense [n, H, W, channels].
using Maps = std::vector<at::Tensor>;
const at::Tensor& box_of(const Maps& maps, size_t level) {
  return maps[2 * level];
}
const at::Tensor& cls_of(const Maps& maps, size_t level) {
  return maps[2 * level + 1];
}

// The logits of a map's cell.
template <typename T>
T* logits_at(const at::Tensor& map, int64_t image, int64_t cell) {
  return map.data_ptr<T>() +
         (image * map.size(1) * map.size(2) + cell) * map.size(3);
}

// Assigns the places of one image.
template <typename T>
class ImageTargets {
 public:
  ImageTargets(const PlaceGrid& grid, const Maps& maps,
               const PlaceLossRule& rule)
      : grid_(grid),
        maps_(maps),
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
    const auto classes = static_cast<size_t>(rule_.num_classes);
    for (size_t i = 0; i < grid_.levels().size(); ++i) {
      const PlaceLevel& level = grid_.levels()[i];
      for (int64_t cell = 0; cell < level.rows * level.width; ++cell) {
        const auto local = static_cast<size_t>(grid_.local_begin(i) + cell);
        boxes_[local] = box_in_pixels(
            logits_at<T>(box_of(maps_, i), image, cell), level, cell);
        const T* const logits = logits_at<T>(cls_of(maps_, i), image, cell);
        for (size_t c = 0; c < classes; ++c) {
          scores_[local * classes + c] = kernels::score_of(logits[c]);
        }
      }
    }
  }

  static CornerBox<T> box_in_pixels(const T* logits, const PlaceLevel& level,
                                    int64_t cell) {
    std::array<T, kBoxSides> d;
    for (size_t side = 0; side < kBoxSides; ++side) {
      d[side] = static_cast<T>(
          kernels::distance_of(logits + side * kDistanceBins).mean);
    }
    return kernels::predicted_box(cell % level.width, cell / level.width,
                                  level.stride, d.data());
  }

  std::vector<PlaceLabel<T>> pixel_labels(
      const std::vector<LabelRow>& labels) const {
    const PlaceLevel& level = grid_.levels().front();
    const auto width = static_cast<T>(level.width * level.stride);
    const auto height = static_cast<T>(level.height * level.stride);
    std::vector<PlaceLabel<T>> result;
    for (const LabelRow& label : labels) {
      result.push_back(pixel_label(label, width, height));
    }
    return result;
  }

  Target target_of(int64_t image, int64_t local, const PlaceLabel<T>& label,
                   double weight) const {
    const size_t i = grid_.level_of(local);
    const PlaceLevel& level = grid_.levels()[i];
    const int64_t cell = local - grid_.local_begin(i);
    const auto stride = static_cast<double>(level.stride);
    const auto in_cells = [stride](T pixels) {
      return static_cast<double>(pixels) / stride;
    };
    return {i,
            image,
            cell,
            level.width,
            label.class_index,
            weight,
            {in_cells(label.box.x1), in_cells(label.box.y1),
             in_cells(label.box.x2), in_cells(label.box.y2)}};
  }

  const PlaceGrid& grid_;
  const Maps& maps_;
  const PlaceLossRule& rule_;
  std::vector<CornerBox<T>> boxes_;
  std::vector<T> scores_;
};

std::vector<Target> targets_of(const PlaceGrid& grid, const Maps& maps,
                               const std::vector<LabelRow>& labels,
                               const PlaceLossRule& rule) {
  const int64_t images = maps.front().size(0);
  std::vector<std::vector<LabelRow>> of_image(static_cast<size_t>(images));
  for (const LabelRow& label : labels) {
    of_image[static_cast<size_t>(label.image)].push_back(label);
  }
  std::vector<Target> targets;
  AT_DISPATCH_FLOATING_TYPES(
      maps.front().scalar_type(), "place assignment", [&] {
        ImageTargets<scalar_t> assignment(grid, maps, rule);
        for (int64_t image = 0; image < images; ++image) {
          assignment.assign(image, of_image[static_cast<size_t>(image)],
                            targets);
        }
      });
  return targets;
}

// Sums over a part of the batch, without gains.
struct Sums {
  double box = 0, cls = 0, dfl = 0, weight = 0;
};

Sums sums_of(const Maps& maps, const std::vector<Target>& targets,
             const PlaceLossRule& rule) {
  Sums sums;
  for (size_t level = 0; level < maps.size() / 2; ++level) {
    sums.cls += entropy_sum(cls_of(maps, level), 0, {1, 0});
  }
  AT_DISPATCH_FLOATING_TYPES(maps.front().scalar_type(), "place loss", [&] {
    for (const Target& target : targets) {
      const BoxTerms terms =
          box_terms(logits_at<scalar_t>(box_of(maps, target.level),
                                        target.image, target.cell),
                    target, rule);
      const scalar_t* const classes = logits_at<scalar_t>(
          cls_of(maps, target.level), target.image, target.cell);
      sums.box += target.weight * terms.box;
      sums.cls -=
          target.weight * static_cast<double>(classes[target.class_index]);
      sums.dfl += target.weight * terms.dfl;
      sums.weight += target.weight;
    }
  });
  return sums;
}

// The gradients of all maps by `scale` times the sum of the terms with gains.
Maps gradients_of(const Maps& maps, const std::vector<Target>& targets,
                  double scale, const PlaceLossRule& rule) {
  Maps gradients;
  for (size_t level = 0; level < maps.size() / 2; ++level) {
    gradients.push_back(at::zeros_like(box_of(maps, level)));
    gradients.push_back(
        at::sigmoid(cls_of(maps, level)).mul_(scale * rule.cls_gain));
  }
  AT_DISPATCH_FLOATING_TYPES(
      maps.front().scalar_type(), "place loss backward", [&] {
        for (const Target& target : targets) {
          const auto at = [&target](const at::Tensor& map) {
            return logits_at<scalar_t>(map, target.image, target.cell);
          };
          const BoxTerms terms =
              box_terms(at(box_of(maps, target.level)), target, rule);
          const double weight = scale * target.weight;
          scalar_t* const box = at(box_of(gradients, target.level));
          for (size_t i = 0; i < terms.gradient.size(); ++i) {
            box[i] = static_cast<scalar_t>(weight * terms.gradient[i]);
          }
          at(cls_of(gradients, target.level))[target.class_index] -=
              static_cast<scalar_t>(weight * rule.cls_gain);
        }
      });
  return gradients;
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

  static variable_list forward(AutogradContext* ctx, at::TensorList given,
                               const PlaceGrid* grid,
                               const std::vector<LabelRow>* labels,
                               const PlaceLossRule* rule) {
    const Maps maps = given.vec();
    const auto kept = c10::make_intrusive<Kept>();
    kept->rule = *rule;
    kept->targets = targets_of(*grid, maps, *labels, *rule);
    const Sums sums = sums_of(maps, kept->targets, *rule);
    const at::Tensor items =
        at::tensor({rule->box_gain * sums.box, rule->cls_gain * sums.cls,
                    rule->dfl_gain * sums.dfl, sums.weight},
                   at::kDouble);
    at::Tensor total = items.narrow(0, 0, 3).sum();
    total.mul_(rule->factor * rule->images);
    ctx->save_for_backward(maps);
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
    variable_list gradients =
        gradients_of(ctx->get_saved_variables(), kept->targets, scale, rule);
    constexpr size_t kOtherArguments = 3;
    gradients.resize(gradients.size() + kOtherArguments);
    return gradients;
  }
};

// [n, H, W, channels], dense.
at::Tensor dense_cells(const at::Tensor& map) {
  return map.permute({0, 2, 3, 1}).contiguous();
}

}  // namespace

PlaceLoss place_loss(const std::vector<PlaceMaps>& levels,
                     const std::vector<LabelRow>& labels,
                     const PlaceLossRule& rule) {
  HEADROOM_CHECK(!levels.empty(), "a head of no levels");
  Maps maps;
  std::vector<PlaceLevel> sizes;
  for (const PlaceMaps& level : levels) {
    HEADROOM_CHECK(
        level.box.size(1) == kBoxSides * kDistanceBins &&
            level.cls.size(1) == rule.num_classes,
        cat("maps of ", level.box.size(1), " and ", level.cls.size(1),
            " channels for ", rule.num_classes, " classes"));
    maps.push_back(dense_cells(level.box));
    maps.push_back(dense_cells(level.cls));
    const int64_t rows = level.box.size(2);
    sizes.push_back({level.stride, rows, level.box.size(3), 0, rows});
  }
  const PlaceGrid grid(std::move(sizes));
  const variable_list results =
      PlaceLossFunction::apply(at::TensorList(maps), &grid, &labels, &rule);
  return {results[0], results[1]};
}

}  // namespace headroom::loss
