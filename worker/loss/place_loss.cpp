#include "worker/loss/place_loss.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <new>
#include <type_traits>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/place_memory.h"
#include "parallel/base/text.h"
#include "worker/kernels/place_math.h"
#include "worker/loss/level_loss.h"

namespace headroom::loss {
namespace {

using kernels::CornerBox;
using kernels::SideDistance;

// The centre of a cell in the whole level, in cells.
double centre_column(const PlaceLevel& level, int64_t cell) {
  return static_cast<double>(cell % level.width) + 0.5;
}
double centre_row(const PlaceLevel& level, int64_t cell) {
  return static_cast<double>(level.first_row + cell / level.width) + 0.5;
}

// An owned place: its level, its cell, and its target.
struct Target {
  size_t level = 0;
  int64_t image = 0, cell = 0;
  double x = 0, y = 0;  // the cell's centre in the whole level, in cells
  int64_t class_index = 0;
  double weight = 0;
  CornerBox<double> box;  // the label's, in cells of the level
};

// The targets of owned places. Their memory is a tensor, so that it is counted;
// it has room for all places that labels can own.
class Targets {
 public:
  explicit Targets(int64_t capacity)
      : memory_(at::empty({capacity, int64_t{sizeof(Target)}}, at::kByte)) {}

  void add(const Target& target) {
    HEADROOM_CHECK(size_ < memory_.size(0), "a label owns too many places");
    new (data() + size_++) Target(target);
  }
  const Target* begin() const { return data(); }
  const Target* end() const { return data() + size_; }

 private:
  static_assert(std::is_trivially_copyable_v<Target> &&
                sizeof(Target) == kPlaceTargetBytes);
  Target* data() const { return static_cast<Target*>(memory_.data_ptr()); }

  at::Tensor memory_;
  int64_t size_ = 0;
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
  const double x = target.x, y = target.y;
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
          -rule.gains.box * ciou.d[side] * distances[side].by_logit(bin);
    }
    const double wanted =
        kernels::wanted_distance(x, y, static_cast<int64_t>(side), target.box);
    terms.dfl += kernels::side_loss(distances[side], wanted,
                                    rule.gains.dfl / kBoxSides, gradient) /
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

// Assigns the places of the images in some maps.
template <typename T>
class PlaceTargets {
 public:
  PlaceTargets(const PlaceGrid& grid, const Maps& maps,
               const std::vector<LabelRow>& labels, const PlaceLossRule& rule)
      : grid_(grid),
        maps_(maps),
        rule_(rule),
        labels_(static_cast<size_t>(maps.front().size(0))),
        boxes_(at::empty({maps.front().size(0), grid.num_local(), kBoxSides},
                         maps.front().options())) {
    for (const LabelRow& label : labels) {
      labels_[static_cast<size_t>(label.image)].push_back(in_pixels(label));
    }
    for (size_t image = 0; image < labels_.size(); ++image) {
      if (!labels_[image].empty()) predict(image);
    }
  }

  Targets assign(const GatherParts& gather) const {
    std::vector<TakenPlaces<T>> taken;
    for (size_t image = 0; image < labels_.size(); ++image) {
      taken.push_back(
          best_places(grid_, labels_[image], predictions(image), rule_.places));
    }
    merge(taken, gather);
    std::vector<std::vector<OwnedPlace<T>>> owned;
    std::vector<std::vector<LabelMaxima<T>>> maxima;
    for (size_t image = 0; image < labels_.size(); ++image) {
      owned.push_back(owned_places(grid_, labels_[image], predictions(image),
                                   taken[image], rule_.places));
      maxima.push_back(label_maxima(owned[image], labels_[image].size()));
    }
    merge(maxima, gather);
    Targets targets(num_labels() * rule_.places.chosen);
    for (size_t image = 0; image < labels_.size(); ++image) {
      for (const OwnedPlace<T>& place : owned[image]) {
        const T weight = place_weight(
            place, maxima[image][static_cast<size_t>(place.label)]);
        targets.add(target_of(image, place, static_cast<double>(weight)));
      }
    }
    return targets;
  }

 private:
  CornerBox<T>* boxes_of(size_t image) const {
    static_assert(sizeof(CornerBox<T>) == kBoxSides * sizeof(T));
    return reinterpret_cast<CornerBox<T>*>(boxes_.data_ptr<T>()) +
           static_cast<int64_t>(image) * grid_.num_local();
  }

  void predict(size_t image) {
    CornerBox<T>* box = boxes_of(image);
    for (size_t i = 0; i < grid_.levels().size(); ++i) {
      const PlaceLevel& level = grid_.levels()[i];
      for (int64_t cell = 0; cell < level.rows * level.width; ++cell) {
        *box++ = box_in_pixels(
            logits_at<T>(box_of(maps_, i), static_cast<int64_t>(image), cell),
            level, cell);
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
    return kernels::predicted_box(cell % level.width,
                                  level.first_row + cell / level.width,
                                  level.stride, d.data());
  }

  PlacePredictions<T> predictions(size_t image) const {
    return {boxes_of(image), [this, image](int64_t local, int64_t class_index) {
              const size_t level = grid_.level_of(local);
              const T logit = logits_at<T>(
                  cls_of(maps_, level), static_cast<int64_t>(image),
                  local - grid_.local_begin(level))[class_index];
              return kernels::score_of(logit);
            }};
  }

  PlaceLabel<T> in_pixels(const LabelRow& label) const {
    const PlaceLevel& level = grid_.levels().front();
    const auto width = static_cast<T>(level.width * level.stride);
    const auto height = static_cast<T>(level.height * level.stride);
    return pixel_label(label, width, height);
  }

  Target target_of(size_t image, const OwnedPlace<T>& place,
                   double weight) const {
    const PlaceLabel<T>& label =
        labels_[image][static_cast<size_t>(place.label)];
    const size_t i = grid_.level_of(place.local);
    const PlaceLevel& level = grid_.levels()[i];
    const int64_t cell = place.local - grid_.local_begin(i);
    const auto in_cells = [&level](T pixels) {
      return static_cast<double>(pixels) / static_cast<double>(level.stride);
    };
    return {i,
            static_cast<int64_t>(image),
            cell,
            centre_column(level, cell),
            centre_row(level, cell),
            label.class_index,
            weight,
            {in_cells(label.box.x1), in_cells(label.box.y1),
             in_cells(label.box.x2), in_cells(label.box.y2)}};
  }

  int64_t num_labels() const {
    int64_t count = 0;
    for (const auto& labels : labels_) count += std::ssize(labels);
    return count;
  }

  // Each label's best places of all parts of the images.
  void merge(std::vector<TakenPlaces<T>>& taken,
             const GatherParts& gather) const {
    if (!gather || num_labels() == 0) return;
    const int64_t chosen = rule_.places.chosen;
    at::Tensor own = at::full({num_labels(), chosen, kNumbersPerTakenPlace}, -1,
                              at::kDouble);
    double* to = own.mutable_data_ptr<double>();
    for (const TakenPlaces<T>& of_image : taken) {
      for (const auto& places : of_image) {
        for (size_t i = 0; i < places.size(); ++i) {
          to[2 * i] = static_cast<double>(places[i].place);
          to[2 * i + 1] = static_cast<double>(places[i].alignment);
        }
        to += 2 * chosen;
      }
    }
    int64_t begin = 0;  // of the image's numbers
    const std::vector<at::Tensor> gathered = gather(own);
    for (size_t image = 0; image < taken.size(); ++image) {
      std::vector<TakenPlaces<T>> parts;
      for (const at::Tensor& part : gathered) {
        const double* from = part.const_data_ptr<double>() + begin;
        for (auto& places : parts.emplace_back(labels_[image].size())) {
          for (int64_t i = 0; i < chosen && from[2 * i] >= 0; ++i) {
            places.push_back({static_cast<int64_t>(from[2 * i]),
                              static_cast<T>(from[2 * i + 1])});
          }
          from += 2 * chosen;
        }
      }
      taken[image] = merged_places(parts, rule_.places);
      begin += 2 * chosen * std::ssize(labels_[image]);
    }
  }

  void merge(std::vector<std::vector<LabelMaxima<T>>>& maxima,
             const GatherParts& gather) const {
    if (!gather || num_labels() == 0) return;
    at::Tensor own = at::empty({num_labels(), 2}, at::kDouble);
    double* to = own.mutable_data_ptr<double>();
    for (const auto& of_image : maxima) {
      for (const LabelMaxima<T>& most : of_image) {
        *to++ = static_cast<double>(most.alignment);
        *to++ = static_cast<double>(most.overlap);
      }
    }
    std::vector<std::vector<std::vector<LabelMaxima<T>>>> parts(maxima.size());
    for (const at::Tensor& part : gather(own)) {
      const double* from = part.const_data_ptr<double>();
      for (size_t image = 0; image < maxima.size(); ++image) {
        auto& here = parts[image].emplace_back(labels_[image].size());
        for (LabelMaxima<T>& most : here) {
          most.alignment = static_cast<T>(*from++);
          most.overlap = static_cast<T>(*from++);
        }
      }
    }
    for (size_t image = 0; image < maxima.size(); ++image) {
      maxima[image] = merged_maxima(parts[image]);
    }
  }

  const PlaceGrid& grid_;
  const Maps& maps_;
  const PlaceLossRule& rule_;
  std::vector<std::vector<PlaceLabel<T>>> labels_;  // by image
  at::Tensor boxes_;  // [n, places, 4], pixels; of images with labels
};

Targets targets_of(const PlaceGrid& grid, const Maps& maps,
                   const std::vector<LabelRow>& labels,
                   const PlaceLossRule& rule, const GatherParts& gather) {
  return AT_DISPATCH_FLOATING_TYPES(
      maps.front().scalar_type(), "place assignment", [&] {
        return PlaceTargets<scalar_t>(grid, maps, labels, rule).assign(gather);
      });
}

// The sum over a dense map, in pieces, because its terms are tensors.
double negative_entropy_sum(const at::Tensor& logits) {
  const at::Tensor flat = logits.view({-1});
  double sum = 0;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPlaceSumElements) {
    const int64_t count = std::min(kPlaceSumElements, flat.numel() - begin);
    sum += entropy_sum(flat.narrow(0, begin, count), 0, {1, 0});
  }
  return sum;
}

// Sums over a part of the batch, without gains.
struct Sums {
  double box = 0, cls = 0, dfl = 0, weight = 0;
};

Sums sums_of(const Maps& maps, const Targets& targets,
             const PlaceLossRule& rule) {
  Sums sums;
  for (size_t level = 0; level < maps.size() / 2; ++level) {
    sums.cls += negative_entropy_sum(cls_of(maps, level));
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
Maps gradients_of(const Maps& maps, const Targets& targets, double scale,
                  const PlaceLossRule& rule) {
  Maps gradients;
  for (size_t level = 0; level < maps.size() / 2; ++level) {
    gradients.push_back(at::zeros_like(box_of(maps, level)));
    gradients.push_back(
        at::sigmoid(cls_of(maps, level)).mul_(scale * rule.gains.cls));
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
              static_cast<scalar_t>(weight * rule.gains.cls);
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
    Kept(Targets places, const PlaceLossRule& of)
        : targets(std::move(places)), rule(of) {}
    const Targets targets;
    const PlaceLossRule rule;
  };

  static variable_list forward(AutogradContext* ctx, at::TensorList given,
                               const PlaceGrid* grid,
                               const std::vector<LabelRow>* labels,
                               const PlaceLossRule* rule,
                               const GatherParts* gather) {
    const Maps maps = given.vec();
    const auto kept = c10::make_intrusive<Kept>(
        targets_of(*grid, maps, *labels, *rule, *gather), *rule);
    const Sums sums = sums_of(maps, kept->targets, *rule);
    const at::Tensor items =
        at::tensor({rule->gains.box * sums.box, rule->gains.cls * sums.cls,
                    rule->gains.dfl * sums.dfl, sums.weight},
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
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(
        ctx->saved_data["kept"].toCapsule());
    // The node keeps its saved data until the whole graph is freed.
    ctx->saved_data.clear();
    const PlaceLossRule& rule = kept->rule;
    const double scale = grads[0].item<double>() * rule.factor * rule.images;
    variable_list gradients =
        gradients_of(ctx->get_saved_variables(), kept->targets, scale, rule);
    constexpr size_t kOtherArguments = 4;
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
                     const PlaceLossRule& rule, const GatherParts& gather) {
  const MemoryCategoryScope scope(MemoryCategory::kLoss);
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
    sizes.push_back({level.stride, level.height > 0 ? level.height : rows,
                     level.box.size(3), level.first_row, rows});
  }
  const PlaceGrid grid(std::move(sizes));
  const variable_list results = PlaceLossFunction::apply(
      at::TensorList(maps), &grid, &labels, &rule, &gather);
  return {results[0], results[1]};
}

}  // namespace headroom::loss
