#include "worker/loss/device_loss.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::loss {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gradient that the producer of a head takes.
struct GradientForm {
  // As cells_of() returns the head: [n, H, W, anchors, fields].
  std::vector<int64_t> cells;
  at::ScalarType type = at::kFloat;
  // Channels of the map [n, channels, H, W] that the producer takes instead of
  // a gradient in the head's form (worker/model/detect.h); 0 if it takes none.
  int64_t channels = 0;

  int64_t pixel_values() const {
    return channels > 0 ? channels : cells[3] * cells[4];
  }
  at::Tensor empty(const at::TensorOptions& options) const {
    return at::empty({cells[0], cells[1], cells[2], pixel_values()},
                     options.dtype(type));
  }
  at::Tensor view_of(const at::Tensor& gradient) const {
    return channels > 0 ? gradient.permute({0, 3, 1, 2})
                        : gradient.view(cells).permute({0, 3, 1, 2, 4});
  }
};

// Data for backward that is not in tensors.
struct Kept final : torch::CustomClassHolder {
  kernels::DeviceKernels* kernels = nullptr;
  kernels::LossRules rules;
  int64_t num_classes = 0;
  std::vector<int64_t> begins, capacities;
  std::vector<GradientForm> gradients;
};

// Saved tensors: targets and scales, then kSavedOfLevel tensors for each level.
constexpr size_t kFirstSaved = 2, kSavedOfLevel = 3;

at::Tensor doubles(const at::Tensor& head, at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions(head.device()).dtype(at::kDouble));
}

// Views the head as [n, H, W, anchors, fields], the memory order that Detect
// produces. A head assembled from several ranks is copied.
at::Tensor cells_of(const at::Tensor& head) {
  return head.permute({0, 2, 3, 1, 4}).contiguous();
}

GradientForm gradient_form(const at::Tensor& head) {
  const HeadSize size = size_of(head);
  GradientForm form;
  form.cells = {size.images, size.height, size.width, size.anchors,
                head.size(4)};
  form.type = head.scalar_type();
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(head);
  if (!edge.is_valid()) return form;  // without backward
  const auto& taken = edge.function->input_metadata(edge.input_nr);
  const c10::SymIntArrayRef sizes = taken.shape_as_dim_vector();
  if (static_cast<int64_t>(sizes.size()) == head.dim()) return form;
  form.type = c10::typeMetaToScalarType(taken.dtype());
  form.channels = sizes[1].expect_int();
  return form;
}

class DeviceLoss : public torch::autograd::Function<DeviceLoss> {
 public:
  static variable_list forward(AutogradContext* ctx, at::TensorList heads,
                               kernels::DeviceKernels* kernels,
                               const PackedTargets& targets,
                               const at::Tensor* scales,
                               const kernels::LossRules& rules) {
    auto kept = c10::make_intrusive<Kept>();
    kept->kernels = kernels;
    kept->rules = rules;
    kept->begins = targets.begins;
    kept->capacities = targets.capacities;
    kernels::LossCall call;
    call.targets = targets.bytes;
    call.scales = *scales;
    call.rules = rules;
    call.num_classes = kept->num_classes = heads[0].size(4) - kFirstClass;
    variable_list saved = {targets.bytes, *scales};
    for (size_t i = 0; i < heads.size(); ++i) {
      kernels::LossCall::Level level;
      level.head = cells_of(heads[i]);
      level.begin = targets.begins[i];
      level.capacity = targets.capacities[i];
      const int64_t classes = call.num_classes;
      const at::TensorOptions options = level.head.options();
      level.objectness =
          at::empty({level.head.numel() / level.head.size(4)}, options);
      level.classes =
          at::empty({level.capacity, classes > 1 ? classes : 0}, options);
      level.fit = doubles(level.head, {level.capacity, kernels::kFitFields});
      saved.insert(saved.end(), {level.objectness, level.classes, level.fit});
      kept->gradients.push_back(gradient_form(heads[i]));
      call.levels.push_back(std::move(level));
    }
    const auto num_levels = static_cast<int64_t>(heads.size());
    call.partial = doubles(heads[0], {num_levels * 2 * kernels::kLossBlocks *
                                      kernels::kLossItems});
    call.items = doubles(heads[0], {kernels::kLossItems});
    call.total = doubles(heads[0], {});
    kernels->loss(call);
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    ctx->mark_non_differentiable({call.items});
    return {call.total, call.items};
  }

  static variable_list backward(AutogradContext* ctx, variable_list outputs) {
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    const variable_list saved = ctx->get_saved_variables();
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(
        ctx->saved_data["kept"].toCapsule());
    kernels::LossCall call;
    call.targets = saved[0];
    call.scales = saved[1];
    call.rules = kept->rules;
    call.num_classes = kept->num_classes;
    call.by_total = outputs[0];
    variable_list gradients;
    for (size_t i = 0; i < kept->gradients.size(); ++i) {
      const size_t first = kFirstSaved + kSavedOfLevel * i;
      kernels::LossCall::Level level;
      level.begin = kept->begins[i];
      level.capacity = kept->capacities[i];
      level.objectness = saved[first];
      level.classes = saved[first + 1];
      level.fit = saved[first + 2];
      level.gradient = kept->gradients[i].empty(level.objectness.options());
      gradients.push_back(kept->gradients[i].view_of(level.gradient));
      call.levels.push_back(std::move(level));
    }
    kept->kernels->loss_gradient(call);
    constexpr size_t kOtherArguments = 4;
    gradients.resize(gradients.size() + kOtherArguments);
    return gradients;
  }
};

}  // namespace

at::Tensor step_scales(const std::vector<LevelScales>& levels,
                       double loss_scale) {
  const auto num_levels = static_cast<int64_t>(levels.size());
  const std::vector<double>& weights = levels.front().class_weights;
  at::Tensor scales =
      at::empty({num_levels * kernels::kLossItems + kernels::kScalesOfAll +
                 static_cast<int64_t>(weights.size())},
                at::kDouble);
  double* to = scales.mutable_data_ptr<double>();
  for (const LevelScales& level : levels) {
    *to++ = level.box;
    *to++ = level.obj;
    *to++ = level.cls;
  }
  *to++ = levels.front().images;
  *to++ = loss_scale;
  std::ranges::copy(weights, to);
  return scales;
}

kernels::LossRules loss_rules(const LevelScales& scales) {
  return {.obj = scales.obj_rule,
          .cls = scales.cls_rule,
          .positive_target = scales.positive_target,
          .negative_target = scales.negative_target,
          .weighs_classes = !scales.class_weights.empty()};
}

HeadSize size_of(const at::Tensor& head) {
  return {head.size(0), head.size(1), head.size(2), head.size(3),
          head.size(4) - kFirstClass};
}

LevelLoss device_loss(kernels::DeviceKernels& kernels,
                      const std::vector<at::Tensor>& heads,
                      const PackedTargets& targets, const at::Tensor& scales,
                      const kernels::LossRules& rules) {
  HEADROOM_CHECK(heads.size() == targets.begins.size(),
                 cat(heads.size(), " heads for targets of ",
                     targets.begins.size(), " levels"));
  variable_list outputs = DeviceLoss::apply(at::TensorList(heads), &kernels,
                                            targets, &scales, rules);
  return {outputs[0], outputs[1]};
}

}  // namespace headroom::loss
