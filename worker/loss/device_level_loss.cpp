#include "worker/loss/device_level_loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/memory_category.h"

namespace headroom::loss {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Registration {
  c10::DeviceType type = c10::DeviceType::CUDA;
  kernels::LossKernels* kernels = nullptr;
};

Registration& registration() {
  static Registration registered;
  return registered;
}

// A level's matches beside its head. M rows, L of them the last of their cell.
struct Matches {
  at::Tensor cells;       // [M]: the cell's place in [n, H, W, anchors]
  at::Tensor classes;     // [M, 1]
  at::Tensor last_rows;   // [L]: of the M
  at::Tensor last_cells;  // [L]: the cell's place in [n, anchors, H, W]
  at::Tensor boxes, anchors;
};

Matches beside_head(kernels::LossKernels& kernels, const LevelTargets& targets,
                    const at::Tensor& head) {
  const int64_t num_rows = targets.size();
  const int64_t* index = targets.index.const_data_ptr<int64_t>();
  std::vector<int64_t> numbers;  // cells, classes, last rows, last cells
  std::vector<int64_t> classes, maps;
  std::unordered_map<int64_t, int64_t> last_of_cell;
  for (int64_t row = 0; row < num_rows; ++row, index += kIndexFields) {
    bool inside = index[4] >= 0 && index[4] < head.size(4) - kFirstClass;
    for (int64_t i = 0; i < 4; ++i)
      inside = inside && index[i] >= 0 && index[i] < head.size(i);
    HEADROOM_CHECK(inside, "match " + std::to_string(row) + " of " +
                               std::to_string(num_rows) +
                               " lies outside the head");
    const int64_t anchors = head.size(1), height = head.size(2),
                  width = head.size(3);
    numbers.push_back(((index[0] * height + index[2]) * width + index[3]) *
                          anchors +
                      index[1]);
    maps.push_back(((index[0] * anchors + index[1]) * height + index[2]) *
                       width +
                   index[3]);
    classes.push_back(index[4]);
    last_of_cell[maps.back()] = row;
  }
  numbers.insert(numbers.end(), classes.begin(), classes.end());
  std::vector<int64_t> last_cells;
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t cell = maps[static_cast<size_t>(row)];
    if (last_of_cell[cell] != row) continue;
    numbers.push_back(row);
    last_cells.push_back(cell);
  }
  numbers.insert(numbers.end(), last_cells.begin(), last_cells.end());

  at::Tensor packed =
      at::empty({static_cast<int64_t>(numbers.size())}, at::kLong);
  std::copy(numbers.begin(), numbers.end(), packed.data_ptr<int64_t>());
  packed = kernels.upload(packed, head.device());
  const auto num_last = static_cast<int64_t>(last_cells.size());
  return {packed.narrow(0, 0, num_rows),
          packed.narrow(0, num_rows, num_rows).unsqueeze(1),
          packed.narrow(0, 2 * num_rows, num_last),
          packed.narrow(0, 2 * num_rows + num_last, num_last),
          kernels.upload(targets.box, head.device()),
          kernels.upload(targets.anchors, head.device())};
}

at::TensorOptions doubles(const at::Tensor& head) {
  return at::TensorOptions(head.device()).dtype(at::kDouble);
}

// Values and derivatives of entries with targets of their own.
struct Entropies {
  at::Tensor value, derivative;
  Entropies(kernels::LossKernels& kernels, const at::Tensor& logits,
            const at::Tensor& targets, const kernels::EntropyRule& rule)
      : value(at::empty(targets.sizes(), targets.options())),
        derivative(at::empty(targets.sizes(), targets.options())) {
    kernels.entropies(logits, targets, rule, value, derivative);
  }
};

class DeviceLevel : public torch::autograd::Function<DeviceLevel> {
 public:
  static variable_list forward(AutogradContext* ctx, const at::Tensor& head,
                               kernels::LossKernels* kernels,
                               const LevelTargets& targets,
                               const LevelScales& scales) {
    const Matches match = beside_head(*kernels, targets, head);
    const int64_t num_rows = targets.size();
    const int64_t num_classes = head.size(4) - kFirstClass;
    const at::Tensor obj = head.select(4, kObjectness).contiguous();
    const at::Tensor fields = head.permute({0, 2, 3, 1, 4})
                                  .reshape({-1, head.size(4)})
                                  .index_select(0, match.cells);
    const at::Tensor ciou = at::empty({num_rows}, doubles(head));
    const at::Tensor by_raw = at::empty({num_rows, 4}, doubles(head));
    kernels->fit_rows(fields, match.boxes, match.anchors, ciou, by_raw);
    const at::Tensor box_sum = at::rsub(ciou, 1).sum();

    const at::Tensor obj_targets =
        ciou.index_select(0, match.last_rows).clamp_min_(0);
    const at::Tensor obj_logits =
        obj.view({-1}).index_select(0, match.last_cells);
    const Entropies by_target(*kernels, obj_logits, obj_targets,
                              scales.obj_rule);
    const Entropies by_none(*kernels, obj_logits, at::zeros_like(obj_targets),
                            scales.obj_rule);
    const at::Tensor obj_sum =
        entropy_total(obj, 0, scales.obj_rule) +
        at::where(obj_targets.gt(0), by_target.value - by_none.value, 0.0)
            .sum();

    at::Tensor classes, own_derivative;
    at::Tensor cls_sum = at::zeros({}, doubles(head));
    if (num_classes > 1) {
      classes = fields.narrow(1, kFirstClass, num_classes).contiguous();
      const at::Tensor own = classes.gather(1, match.classes).view({-1});
      const Entropies positive(
          *kernels, own,
          at::full({num_rows}, scales.positive_target, doubles(head)),
          scales.cls_rule);
      const Entropies negative(
          *kernels, own,
          at::full({num_rows}, scales.negative_target, doubles(head)),
          scales.cls_rule);
      own_derivative = positive.derivative;
      cls_sum =
          entropy_total(classes, scales.negative_target, scales.cls_rule) +
          (positive.value - negative.value).sum();
    }
    const at::Tensor items = at::stack(
        {box_sum * scales.box, obj_sum * scales.obj, cls_sum * scales.cls});

    ctx->save_for_backward({obj, classes, own_derivative, match.cells,
                            match.classes, match.last_cells, by_raw,
                            obj_targets, by_target.derivative});
    ctx->saved_data["sizes"] = head.sizes();
    ctx->saved_data["scales"] = std::vector<double>{
        scales.box * scales.images,      scales.obj * scales.images,
        scales.cls * scales.images,      scales.negative_target,
        scales.obj_rule.positive_weight, scales.obj_rule.focal_gamma,
        scales.cls_rule.positive_weight, scales.cls_rule.focal_gamma};
    variable_list outputs = {items.sum().mul_(scales.images), items};
    ctx->mark_non_differentiable({outputs[1]});
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list outputs) {
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &obj = saved[0], &classes = saved[1],
                     &own_derivative = saved[2], &cells = saved[3],
                     &own_class = saved[4], &last_cells = saved[5],
                     &by_raw = saved[6], &obj_targets = saved[7],
                     &obj_derivative = saved[8];
    const std::vector<int64_t> sizes = ctx->saved_data["sizes"].toIntVector();
    const std::vector<double> s = ctx->saved_data["scales"].toDoubleVector();
    const kernels::EntropyRule obj_rule{s[4], s[5]}, cls_rule{s[6], s[7]};
    const at::Tensor box_scale = outputs[0] * s[0];
    const at::Tensor obj_scale = outputs[0] * s[1];
    const at::Tensor cls_scale = outputs[0] * s[2];
    const auto type = obj.scalar_type();

    // Rows of fields by [n, H, W, anchors], seen as the head.
    at::Tensor by_head = at::empty(
        {sizes[0], sizes[2], sizes[3], sizes[1], sizes[4]}, obj.options());
    by_head.zero_();
    at::Tensor by_obj = entropy_derivative(obj, 0, obj_rule).mul_(obj_scale);
    const at::Tensor flat = by_obj.view({-1});
    flat.index_copy_(
        0, last_cells,
        at::where(obj_targets.gt(0), (obj_derivative * obj_scale).to(type),
                  flat.index_select(0, last_cells)));

    at::Tensor rows = at::zeros({cells.size(0), sizes[4]}, obj.options());
    rows.narrow(1, 0, 4).copy_((by_raw * box_scale).neg_());
    if (classes.defined()) {
      at::Tensor by_classes =
          entropy_derivative(classes, s[3], cls_rule).mul_(cls_scale);
      by_classes.scatter_(1, own_class,
                          (own_derivative * cls_scale).to(type).unsqueeze(1));
      rows.narrow(1, kFirstClass, classes.size(1)).copy_(by_classes);
    }
    by_head.view({-1, sizes[4]}).index_add_(0, cells, rows);
    by_head = by_head.permute({0, 3, 1, 2, 4});
    by_head.select(4, kObjectness).copy_(by_obj);
    return {by_head, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void set_loss_kernels(c10::DeviceType type, kernels::LossKernels* kernels) {
  registration() = {type, kernels};
}

kernels::LossKernels* loss_kernels_for(const at::Tensor& head) {
  const Registration& registered = registration();
  if (registered.kernels != nullptr &&
      head.device().type() == registered.type) {
    return registered.kernels;
  }
  if (head.is_cpu()) return nullptr;
  throw Error("device",
              "a head is on " + head.device().str() +
                  ", for which no kernels are loaded",
              "use --device cpu");
}

LevelLoss device_level_loss(kernels::LossKernels& kernels,
                            const at::Tensor& head, const LevelTargets& targets,
                            const LevelScales& scales) {
  variable_list outputs = DeviceLevel::apply(head, &kernels, targets, scales);
  return {outputs[0], outputs[1]};
}

}  // namespace headroom::loss
