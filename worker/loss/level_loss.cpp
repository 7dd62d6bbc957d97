#include "worker/loss/level_loss.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "worker/kernels/box_iou.h"

namespace headroom::loss {
namespace {

// Above 40, softplus(x) equals x even in double; below it exp cannot overflow.
at::Tensor softplus_map(const at::Tensor& x) { return at::softplus(x, 1, 40); }

at::Tensor plain_values(const at::Tensor& x, double target,
                        const kernels::EntropyRule& rule) {
  at::Tensor values = softplus_map(x);
  if (target == 0) return values;
  values.mul_(1 - target);
  return values.add_(softplus_map(x.neg()), rule.positive_weight * target);
}

// q, the probability that the entry is wrong. It is kept above zero, because
// q^(gamma-1) may be infinite at zero although the derivative is zero there.
at::Tensor wrongness(const at::Tensor& sigmoid, double target) {
  const double smallest = sigmoid.scalar_type() == at::kDouble
                              ? std::numeric_limits<double>::min()
                              : std::numeric_limits<float>::min();
  return sigmoid.mul(1 - 2 * target).add_(target).clamp_min_(smallest);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Positions of a level's matches in its head.
class RowPlaces {
 public:
  RowPlaces(const at::Tensor& index, at::IntArrayRef sizes,
            at::IntArrayRef strides)
      : index_(index.const_data_ptr<int64_t>()),
        sizes_(sizes.vec()),
        strides_(strides.vec()) {}

  int64_t class_index(int64_t row) const {
    return index_[row * kIndexFields + 4];
  }
  // Offset of the row's first field, in elements.
  int64_t in_head(int64_t row) const {
    int64_t offset = 0;
    for (size_t i = 0; i < 4; ++i) offset += field(row, i) * strides_[i];
    return offset;
  }
  // Offset of the row's cell in a contiguous map [n, anchors, H, W].
  int64_t in_map(int64_t row) const {
    int64_t offset = 0;
    for (size_t i = 0; i < 4; ++i) offset = offset * sizes_[i] + field(row, i);
    return offset;
  }
  int64_t field_stride() const { return strides_[4]; }

  void check(int64_t num_rows) const {
    for (int64_t row = 0; row < num_rows; ++row) {
      bool inside =
          class_index(row) >= 0 && class_index(row) < sizes_[4] - kFirstClass;
      for (size_t i = 0; i < 4; ++i)
        inside = inside && field(row, i) >= 0 && field(row, i) < sizes_[i];
      HEADROOM_CHECK(inside, cat("match ", row, " of ", num_rows,
                                 " lies outside the head"));
    }
  }

 private:
  int64_t field(int64_t row, size_t i) const {
    return index_[row * kIndexFields + static_cast<int64_t>(i)];
  }
  const int64_t* index_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> strides_;
};

// Computes each matched row's CIoU and its gradient by the raw box, in double.
template <typename T>
void fit_rows(const T* head, const RowPlaces& places,
              const LevelTargets& targets, double* ciou, double* gradient) {
  const T* boxes = targets.box.const_data_ptr<T>();
  const T* anchors = targets.anchors.const_data_ptr<T>();
  at::parallel_for(0, targets.size(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      double raw[4], wanted[4];
      const T* fields = head + places.in_head(row);
      for (int64_t i = 0; i < 4; ++i) {
        raw[i] = fields[i * places.field_stride()];
        wanted[i] = boxes[row * 4 + i];
      }
      const double anchor[2] = {anchors[row * 2], anchors[row * 2 + 1]};
      const kernels::RowFit fit = kernels::fit_row(raw, anchor, wanted);
      ciou[row] = fit.ciou;
      std::copy_n(fit.gradient, 4, gradient + row * 4);
    }
  });
}

// The objectness target of each row's cell; 0 if a later row overwrites it.
at::Tensor last_writes(const at::Tensor& ciou, const RowPlaces& places,
                       int64_t num_cells) {
  at::Tensor map = at::zeros({num_cells}, at::kDouble);
  at::Tensor kept = at::empty_like(ciou);
  double* cells = map.mutable_data_ptr<double>();
  double* targets = kept.mutable_data_ptr<double>();
  const double* values = ciou.const_data_ptr<double>();
  for (int64_t row = 0; row < ciou.numel(); ++row)
    cells[places.in_map(row)] = std::max(values[row], 0.0);
  for (int64_t row = 0; row < ciou.numel(); ++row) {
    double& cell = cells[places.in_map(row)];
    targets[row] = cell;
    cell = 0;
  }
  return kept;
}

template <typename T>
at::Tensor gather_classes(const at::Tensor& head, const RowPlaces& places,
                          int64_t num_rows) {
  const int64_t num_classes = head.size(4) - kFirstClass;
  at::Tensor logits = at::empty({num_rows, num_classes}, head.scalar_type());
  T* out = logits.mutable_data_ptr<T>();
  const T* data = head.const_data_ptr<T>();
  for (int64_t row = 0; row < num_rows; ++row)
    for (int64_t c = 0; c < num_classes; ++c)
      *out++ =
          data[places.in_head(row) + (kFirstClass + c) * places.field_stride()];
  return logits;
}

// Corrects a sum that assumed the target `common`, for an entry with another
// target.
struct Correction {
  kernels::EntropyRule rule;
  double common;
  double operator()(double x, double target) const {
    return kernels::entropy(x, target, rule).value -
           kernels::entropy(x, common, rule).value;
  }
};

// Returns true if one rule can be used for the logits of all classes, except
// for the few logits of matched boxes. The other logits have the negative
// target. Without label smoothing it is 0, and then a class's weight has no
// effect.
bool has_common_rule(const LevelScales& scales) {
  return scales.class_weights.empty() || scales.negative_target == 0;
}

// As entropy_sum(), over class logits [rows, classes] with the negative target.
double class_sum(const at::Tensor& logits, const LevelScales& scales) {
  const double target = scales.negative_target;
  if (has_common_rule(scales)) {
    return entropy_sum(logits, target, scales.cls_rule);
  }
  double sum = 0;
  for (int64_t c = 0; c < logits.size(1); ++c) {
    sum += entropy_sum(logits.select(1, c), target, scales.rule_of_class(c));
  }
  return sum;
}

// Like entropy_derivative(), over the same logits with the negative target.
at::Tensor class_derivative(const at::Tensor& logits,
                            const LevelScales& scales) {
  const double target = scales.negative_target;
  if (has_common_rule(scales)) {
    return entropy_derivative(logits, target, scales.cls_rule);
  }
  at::Tensor result = at::empty_like(logits);
  for (int64_t c = 0; c < logits.size(1); ++c) {
    result.select(1, c).copy_(entropy_derivative(logits.select(1, c), target,
                                                 scales.rule_of_class(c)));
  }
  return result;
}

class LevelFunction : public torch::autograd::Function<LevelFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& head,
                               const LevelTargets& targets,
                               const LevelScales& scales,
                               const Distillation& distillation) {
    const int64_t num_rows = targets.size();
    const RowPlaces places(targets.index, head.sizes(), head.strides());
    places.check(num_rows);
    const at::Tensor obj = head.select(4, kObjectness).contiguous();
    at::Tensor ciou = at::empty({num_rows}, at::kDouble);
    at::Tensor gradient = at::empty({num_rows, 4}, at::kDouble);
    at::Tensor classes, obj_targets;
    double box_sum = 0, cls_sum = 0;
    double obj_sum = entropy_sum(obj, 0, scales.obj_rule);

    AT_DISPATCH_FLOATING_TYPES(head.scalar_type(), "level_loss", [&] {
      fit_rows(head.const_data_ptr<scalar_t>(), places, targets,
               ciou.mutable_data_ptr<double>(),
               gradient.mutable_data_ptr<double>());
      obj_targets = last_writes(ciou, places, obj.numel());
      const double* fit = ciou.const_data_ptr<double>();
      const double* target = obj_targets.const_data_ptr<double>();
      const scalar_t* obj_logits = obj.const_data_ptr<scalar_t>();
      const Correction obj_correction{scales.obj_rule, 0};
      for (int64_t row = 0; row < num_rows; ++row) {
        box_sum += 1 - fit[row];
        if (target[row] > 0)
          obj_sum +=
              obj_correction(obj_logits[places.in_map(row)], target[row]);
      }
      if (head.size(4) - kFirstClass == 1) return;
      classes = gather_classes<scalar_t>(head, places, num_rows);
      cls_sum = class_sum(classes, scales);
      const scalar_t* logits = classes.const_data_ptr<scalar_t>();
      for (int64_t row = 0; row < num_rows; ++row) {
        const int64_t own = places.class_index(row);
        const Correction correction{scales.rule_of_class(own),
                                    scales.negative_target};
        cls_sum += correction(logits[row * classes.size(1) + own],
                              scales.positive_target);
      }
    });

    DistilledLevel distilled;
    if (distillation.teacher.defined()) {
      distilled = distil_level(head, distillation);
    }
    ctx->save_for_backward({obj, classes, targets.index, gradient, obj_targets,
                            distilled.gradient});
    ctx->saved_data["sizes"] = head.sizes();
    ctx->saved_data["strides"] =
        at::infer_dense_strides(head.sizes(), head.strides());
    save_scales(ctx, scales);
    const std::vector<double> items = {
        scales.box * box_sum + distilled.items[0],
        scales.obj * obj_sum + distilled.items[1],
        scales.cls * cls_sum + distilled.items[2]};
    variable_list outputs = {
        at::scalar_tensor(scales.images * (items[0] + items[1] + items[2]),
                          at::kDouble),
        at::tensor(items, at::kDouble)};
    ctx->mark_non_differentiable({outputs[1]});
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list outputs) {
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &obj = saved[0], &classes = saved[1], &index = saved[2],
                     &gradient = saved[3], &obj_targets = saved[4],
                     &distilled = saved[5];
    const auto sizes = ctx->saved_data["sizes"].toIntVector();
    const auto strides = ctx->saved_data["strides"].toIntVector();
    LevelScales scales = load_scales(ctx);
    const double by_total = outputs[0].item<double>() * scales.images;
    scales.box *= by_total;
    scales.obj *= by_total;
    scales.cls *= by_total;

    // With a teacher the gradient already contains the distillation terms.
    const bool has_teacher = distilled.defined();
    at::Tensor by_head = has_teacher
                             ? distilled
                             : at::empty_strided(sizes, strides, obj.options());
    const auto by_obj = [&] {
      return entropy_derivative(obj, 0, scales.obj_rule).mul_(scales.obj);
    };
    if (has_teacher) {
      by_head.mul_(by_total);
      by_head.select(4, kObjectness).add_(by_obj());
    } else {
      by_head.zero_();
      by_head.select(4, kObjectness).copy_(by_obj());
    }
    at::Tensor by_classes;
    if (classes.defined())
      by_classes = class_derivative(classes, scales).mul_(scales.cls);

    const RowPlaces places(index, sizes, strides);
    AT_DISPATCH_FLOATING_TYPES(obj.scalar_type(), "level_loss_backward", [&] {
      scalar_t* head = by_head.mutable_data_ptr<scalar_t>();
      const scalar_t* obj_logits = obj.const_data_ptr<scalar_t>();
      const double* by_raw = gradient.const_data_ptr<double>();
      const double* target = obj_targets.const_data_ptr<double>();
      const int64_t stride = places.field_stride();
      for (int64_t row = 0; row < index.size(0); ++row) {
        scalar_t* fields = head + places.in_head(row);
        for (int64_t i = 0; i < 4; ++i)
          fields[i * stride] +=
              static_cast<scalar_t>(-scales.box * by_raw[row * 4 + i]);
        if (target[row] > 0) {
          const double x = obj_logits[places.in_map(row)];
          const double all =
              scales.obj *
              kernels::entropy(x, target[row], scales.obj_rule).derivative;
          scalar_t& field = fields[kObjectness * stride];
          field = static_cast<scalar_t>(
              has_teacher
                  ? field + all -
                        scales.obj *
                            kernels::entropy(x, 0, scales.obj_rule).derivative
                  : all);
        }
        if (!classes.defined()) continue;
        const int64_t first = row * classes.size(1);
        const int64_t own = places.class_index(row);
        const double x = classes.const_data_ptr<scalar_t>()[first + own];
        scalar_t* by_logits = by_classes.mutable_data_ptr<scalar_t>() + first;
        by_logits[own] = static_cast<scalar_t>(
            scales.cls * kernels::entropy(x, scales.positive_target,
                                          scales.rule_of_class(own))
                             .derivative);
        for (int64_t c = 0; c < classes.size(1); ++c)
          fields[(kFirstClass + c) * stride] += by_logits[c];
      }
    });
    return {by_head, at::Tensor(), at::Tensor(), at::Tensor()};
  }

 private:
  static void save_scales(AutogradContext* ctx, const LevelScales& s) {
    ctx->saved_data["scales"] = std::vector<double>{s.box,
                                                    s.obj,
                                                    s.cls,
                                                    s.images,
                                                    s.positive_target,
                                                    s.negative_target,
                                                    s.obj_rule.positive_weight,
                                                    s.obj_rule.focal_gamma,
                                                    s.cls_rule.positive_weight,
                                                    s.cls_rule.focal_gamma};
    ctx->saved_data["class_weights"] = s.class_weights;
  }
  static LevelScales load_scales(AutogradContext* ctx) {
    const std::vector<double> s = ctx->saved_data["scales"].toDoubleVector();
    return {.box = s[0],
            .obj = s[1],
            .cls = s[2],
            .images = s[3],
            .positive_target = s[4],
            .negative_target = s[5],
            .obj_rule = {.positive_weight = s[6], .focal_gamma = s[7]},
            .cls_rule = {.positive_weight = s[8], .focal_gamma = s[9]},
            .class_weights = ctx->saved_data["class_weights"].toDoubleVector()};
  }
};

}  // namespace

double entropy_sum(const at::Tensor& logits, double target,
                   const kernels::EntropyRule& rule) {
  at::Tensor values = plain_values(logits, target, rule);
  if (rule.focal_gamma != 0)
    values.mul_(wrongness(at::sigmoid(logits), target).pow_(rule.focal_gamma))
        .mul_(kernels::focal_alpha(target));
  return values.sum(at::kDouble).item<double>();
}

at::Tensor entropy_derivative(const at::Tensor& logits, double target,
                              const kernels::EntropyRule& rule) {
  const at::Tensor s = at::sigmoid(logits);
  // (1-t) s - p t (1-s), rearranged so that s is used once.
  const double positive = rule.positive_weight * target;
  at::Tensor derivative = s.mul(1 - target + positive).sub_(positive);
  if (rule.focal_gamma == 0) return derivative;

  const double gamma = rule.focal_gamma;
  const at::Tensor q = wrongness(s, target);
  const at::Tensor q_derivative =
      s.mul(1 - 2 * target).mul_(s.neg().add_(1)).mul_(gamma);
  derivative.add_(
      plain_values(logits, target, rule).mul_(q_derivative).div_(q));
  return derivative.mul_(at::pow(q, gamma)).mul_(kernels::focal_alpha(target));
}

LevelLoss level_loss(const at::Tensor& head, const LevelTargets& targets,
                     const LevelScales& scales,
                     const Distillation& distillation) {
  HEADROOM_CHECK(head.dim() == 5 && head.size(4) > kFirstClass,
                 "a head has 5 dimensions and at least one class");
  HEADROOM_CHECK(targets.index.defined() &&
                     targets.box.scalar_type() == head.scalar_type(),
                 "targets must be assigned in the heads' type");
  variable_list outputs =
      LevelFunction::apply(head, targets, scales, distillation);
  return {outputs[0], outputs[1]};
}

}  // namespace headroom::loss
