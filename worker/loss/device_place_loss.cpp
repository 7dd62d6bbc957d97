#include "worker/loss/device_place_loss.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::loss {
namespace {

using kernels::PlaceLossCall;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The channels and type of the gradient that the producer of a map takes.
struct MapGradient {
  int64_t channels = 0;
  at::ScalarType type = at::kFloat;

  // [n, rows, W, channels]
  at::Tensor empty(const at::Tensor& cells) const {
    return at::empty({cells.size(0), cells.size(1), cells.size(2), channels},
                     cells.options().dtype(type));
  }
};

MapGradient gradient_of(const at::Tensor& map) {
  const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(map);
  if (!edge.is_valid()) return {map.size(1), map.scalar_type()};
  const auto& taken = edge.function->input_metadata(edge.input_nr);
  return {taken.shape_as_dim_vector()[1].expect_int(),
          c10::typeMetaToScalarType(taken.dtype())};
}

// Data for backward: the call of forward without its outputs, whose large
// tensors are saved by autograd, and the forms of the gradients.
struct KeptPlaces final : torch::CustomClassHolder {
  kernels::DeviceKernels* kernels = nullptr;
  PlaceLossCall call;
  std::vector<MapGradient> box_gradients, cls_gradients;
};

// The tensors of a call that backward reads.
std::vector<at::Tensor*> tensors_of_backward(PlaceLossCall& call) {
  std::vector<at::Tensor*> tensors = {&call.labels,     &call.scales,
                                      &call.distances,  &call.owners,
                                      &call.alignments, &call.all_maxima};
  for (PlaceLossCall::Level& level : call.levels) {
    tensors.push_back(&level.box);
    tensors.push_back(&level.cls);
  }
  return tensors;
}

// Allocates what the passes of forward write.
void allocate_results(PlaceLossCall& call) {
  const at::TensorOptions maps = call.levels.front().box.options();
  const at::TensorOptions doubles = maps.dtype(at::kDouble);
  int64_t places = 0;
  for (const PlaceLossCall::Level& level : call.levels) {
    places += level.box.size(0) * level.box.size(1) * level.box.size(2);
  }
  call.distances = at::empty({places, kBoxSides}, maps);
  call.owners = at::empty({places}, maps.dtype(at::kLong));
  call.alignments = at::empty({places}, maps);
  call.taken = at::empty(
      {call.capacity, kernels::kMostTakenPlaces, kernels::kTakenFields},
      doubles);
  call.maxima = at::empty({call.capacity, kernels::kMaximaFields}, doubles);
  call.partial =
      at::empty({std::ssize(call.levels) * 2 * kernels::kPlaceLossBlocks *
                 kernels::kPlaceLossItems},
                doubles);
  call.items = at::empty({kernels::kPlaceLossItems}, doubles);
  call.total = at::empty({}, doubles);
}

class DevicePlaceLoss : public torch::autograd::Function<DevicePlaceLoss> {
 public:
  // `maps`: box and cls of each level. `prepared` has everything but tensors of
  // maps and results.
  static variable_list forward(AutogradContext* ctx, at::TensorList maps,
                               kernels::DeviceKernels* kernels,
                               const PlaceLossCall* prepared,
                               const GatherParts* gather) {
    const auto kept = c10::make_intrusive<KeptPlaces>();
    kept->kernels = kernels;
    PlaceLossCall call = *prepared;
    for (size_t i = 0; i < call.levels.size(); ++i) {
      const at::Tensor& box = maps[2 * i];
      const at::Tensor& cls = maps[2 * i + 1];
      call.levels[i].box = box.permute({0, 2, 3, 1}).contiguous();
      call.levels[i].cls = cls.permute({0, 2, 3, 1}).contiguous();
      kept->box_gradients.push_back(gradient_of(box));
      kept->cls_gradients.push_back(gradient_of(cls));
    }
    allocate_results(call);
    const auto of_all = [gather](const at::Tensor& own) {
      return *gather ? at::stack((*gather)(own)) : own.unsqueeze(0);
    };
    kernels->best_places(call);
    call.all_taken = of_all(call.taken);
    kernels->place_owners(call);
    call.all_maxima = of_all(call.maxima);
    kernels->place_loss(call);

    variable_list saved;
    for (at::Tensor* const tensor : tensors_of_backward(call)) {
      saved.push_back(std::move(*tensor));
      *tensor = at::Tensor();
    }
    ctx->save_for_backward(std::move(saved));
    const at::Tensor total = call.total, items = call.items;
    call.taken = call.all_taken = call.maxima = call.partial = at::Tensor();
    call.items = call.total = at::Tensor();
    kept->call = std::move(call);
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    ctx->mark_non_differentiable({items});
    return {total, items};
  }

  static variable_list backward(AutogradContext* ctx, variable_list outputs) {
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    const auto kept = c10::static_intrusive_pointer_cast<KeptPlaces>(
        ctx->saved_data["kept"].toCapsule());
    PlaceLossCall call = kept->call;
    const variable_list saved = ctx->get_saved_variables();
    size_t next = 0;
    for (at::Tensor* const tensor : tensors_of_backward(call)) {
      *tensor = saved[next++];
    }
    call.by_total = outputs[0];
    variable_list gradients;
    for (size_t i = 0; i < call.levels.size(); ++i) {
      PlaceLossCall::Level& level = call.levels[i];
      level.box_gradient = kept->box_gradients[i].empty(level.box);
      level.cls_gradient = kept->cls_gradients[i].empty(level.cls);
      gradients.push_back(level.box_gradient.permute({0, 3, 1, 2}));
      gradients.push_back(level.cls_gradient.permute({0, 3, 1, 2}));
    }
    kept->kernels->place_loss_gradient(call);
    constexpr size_t kOtherArguments = 3;
    gradients.resize(gradients.size() + kOtherArguments);
    return gradients;
  }
};

}  // namespace

at::Tensor place_scales(double images, double factor) {
  at::Tensor scales = at::empty({kernels::kPlaceLossScales}, at::kDouble);
  auto* const to = scales.mutable_data_ptr<double>();
  to[0] = images;
  to[1] = factor;
  return scales;
}

PlaceLoss device_place_loss(kernels::DeviceKernels& kernels,
                            const std::vector<PlaceMaps>& levels,
                            const PackedTargets& labels,
                            const at::Tensor& scales, const PlaceLossRule& rule,
                            const GatherParts& gather) {
  HEADROOM_CHECK(rule.places.kept >= rule.places.chosen,
                 cat("a device does not choose ", rule.places.kept, " of ",
                     rule.places.chosen, " places"));
  PlaceLossCall call;
  std::vector<at::Tensor> maps;
  for (const PlaceMaps& level : levels) {
    PlaceLossCall::Level to;
    to.stride = level.stride;
    to.height = level.height > 0 ? level.height : level.box.size(2);
    to.first_row = level.first_row;
    HEADROOM_CHECK(gather || to.height == level.box.size(2),
                   "rows of an image without the other ranks' numbers");
    call.levels.push_back(std::move(to));
    maps.push_back(level.box);
    maps.push_back(level.cls);
  }
  call.num_classes = rule.num_classes;
  call.capacity = labels.capacities.front();
  call.labels = labels.bytes;
  call.scales = scales;
  call.rules = {rule.gains.box, rule.gains.cls, rule.gains.dfl,
                rule.places.chosen};
  const variable_list outputs =
      DevicePlaceLoss::apply(at::TensorList(maps), &kernels, &call, &gather);
  return {outputs[0], outputs[1]};
}

}  // namespace headroom::loss
