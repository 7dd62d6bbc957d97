#include "worker/step/stage_step.h"

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/step_phase.h"
#include "worker/loss/device_loss.h"
#include "worker/step/stage_forward.h"

namespace headroom::step {

using Kind = pipeline::Instruction::Kind;

StageStep::StageStep(const Parts& parts) : parts_(parts) {
  parts_.context.set_batch(parts_.batch.global_size, parts_.batch.image_height,
                           parts_.batch.image_width);
}

model::StepContext StageStep::context_of(int64_t micro_batch) const {
  model::StepContext context = parts_.context.training(
      samples_of(micro_batch), parts_.state.batch_norm_sums());
  // Sharded gradients lie elsewhere until a layer's turn comes, and others are
  // reduced as soon as autograd has added them.
  context.adds_gradients = parts_.mesh.replicas->size() == 1 &&
                           parts_.state.gradients().sharded() == nullptr;
  return context;
}

at::Tensor StageStep::images_of(int64_t micro_batch,
                                const std::optional<at::Tensor>& into) const {
  return parts_.images.input(parts_.batch, parts_.micro_batches,
                             static_cast<size_t>(micro_batch),
                             parts_.state.map_options(), into);
}

CudaGraphRunner::Inputs StageStep::inputs_of(int64_t micro_batch) const {
  const loader::Batch& batch = parts_.batch;
  const plan::SampleRange& part = samples_of(micro_batch);
  const auto own = [&](const at::Tensor& all) {
    return all.narrow(0, part.begin - batch.local_begin, part.size());
  };
  const std::vector<loss::HeadSize> sizes = head_sizes(micro_batch);
  CudaGraphRunner::Inputs inputs;
  inputs.loaded = own(batch.packed.defined() ? batch.packed : batch.images);
  inputs.image_sizes = own(batch.images).sizes().vec();
  inputs.map = [this, micro_batch](const std::optional<at::Tensor>& into) {
    return images_of(micro_batch, into);
  };
  inputs.send_following = [this, micro_batch] {
    parts_.images.send_following(parts_.batch, parts_.micro_batches,
                                 static_cast<size_t>(micro_batch));
  };
  inputs.targets = packed_targets_of(micro_batch, sizes);
  inputs.scales = scales_of(sizes);
  return inputs;
}

void StageStep::prepare() {
  parts_.captured->prepare(inputs_of(0), context_of(0));
}

std::vector<at::Tensor> StageStep::forward(int64_t micro_batch,
                                           std::vector<at::Tensor> received) {
  begin_pass({Kind::kForward, micro_batch});
  if (!parts_.state.has_learners_before()) {
    for (at::Tensor& map : received) map = map.detach();
  }
  const model::StepContext context = context_of(micro_batch);
  const auto run_layers = [&](const at::Tensor& pixels) {
    return run_stage_layers(parts_.state.model(), parts_.routes,
                            std::move(received), pixels, context);
  };
  if (parts_.captured != nullptr) {
    CudaGraphRunner::Inputs own = inputs_of(micro_batch);
    CudaGraphRunner::End end;
    if (parts_.end_numbers != nullptr) {
      own.ends_step = is_last(micro_batch);
      own.end = parts_.end_numbers(own.ends_step);
      end = [&](const CudaGraphRunner::Inputs& inputs) {
        parts_.state.end_on_device(inputs.end, parts_.items);
      };
    }
    return {parts_.captured->run(
        std::move(own), context,
        [&](const CudaGraphRunner::Inputs& inputs) {
          return loss_on_device(run_layers(inputs.images), inputs.targets,
                                inputs.scales);
        },
        end)};
  }
  at::Tensor images;
  if (parts_.routes.reads_images) images = images_of(micro_batch);
  // It runs before the student, so that its maps are freed before the student's
  // are allocated.
  std::vector<at::Tensor> teacher;
  if (parts_.teacher != nullptr) teacher = parts_.teacher->heads(images);
  std::vector<at::Tensor> outputs = run_layers(images);
  if (!parts_.mesh.is_last_stage()) return outputs;
  return {loss_of(micro_batch, outputs, teacher)};
}

// A batch holds the targets of its own micro-batches; smaller ones are
// assigned anew.
std::vector<loss::LevelTargets> StageStep::targets_of(
    int64_t micro_batch) const {
  const loader::Batch& batch = parts_.batch;
  if (parts_.micro_batches == batch.micro_batches) {
    return batch.targets[static_cast<size_t>(micro_batch)];
  }
  return parts_.assign(loader::labels_of(batch, samples_of(micro_batch)),
                       batch.image_height, batch.image_width);
}

std::vector<loss::HeadSize> StageStep::head_sizes(int64_t micro_batch) const {
  std::vector<loss::HeadGrid> grids;
  for (const model::LayerGraph::Level& level : parts_.state.model().levels()) {
    grids.push_back({level.stride, static_cast<int64_t>(level.anchors.size())});
  }
  return loss::head_sizes(grids, parts_.gains.num_classes,
                          samples_of(micro_batch).size(),
                          parts_.batch.image_height, parts_.batch.image_width);
}

loss::PackedTargets StageStep::packed_targets_of(
    int64_t micro_batch, const std::vector<loss::HeadSize>& heads) const {
  const loader::Batch& batch = parts_.batch;
  if (parts_.micro_batches == batch.micro_batches &&
      !batch.packed_targets.empty() && !parts_.context.images_are_split()) {
    return batch.packed_targets[static_cast<size_t>(micro_batch)];
  }
  std::vector<loss::LevelTargets> targets = targets_of(micro_batch);
  if (parts_.context.images_are_split()) {
    for (size_t level = 0; level < heads.size(); ++level) {
      const int64_t rows = heads[level].height;
      targets[level] = loss::targets_of_rows(
          targets[level], parts_.context.window(rows).first_row, rows);
    }
  }
  return loss::pack_targets(targets, heads, parts_.match_capacity);
}

at::Tensor StageStep::scales_of(
    const std::vector<loss::HeadSize>& heads) const {
  loss::GlobalCounts counts = parts_.counts;
  if (parts_.context.images_are_split()) {
    for (const loss::HeadSize& head : heads) {
      counts.global_rows.push_back(
          parts_.context.window(head.height).global_rows);
    }
  }
  return loss::detection_scales(heads, counts, parts_.gains, parts_.loss_scale);
}

at::Tensor StageStep::loss_on_device(const std::vector<at::Tensor>& heads,
                                     const loss::PackedTargets& targets,
                                     const at::Tensor& scales) {
  const loss::DetectionLoss loss =
      loss::detection_loss(heads, targets, scales, parts_.gains);
  parts_.items.add_(loss.items);
  return loss.total;
}

at::Tensor StageStep::loss_of(int64_t micro_batch,
                              const std::vector<at::Tensor>& heads,
                              const std::vector<at::Tensor>& teacher) {
  if (!parts_.state.device().is_cpu()) {
    HEADROOM_CHECK(teacher.empty(), "a teacher's heads are on the CPU");
    std::vector<loss::HeadSize> sizes;
    for (const at::Tensor& head : heads) sizes.push_back(loss::size_of(head));
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    loss::PackedTargets targets = packed_targets_of(micro_batch, sizes);
    targets.bytes = parts_.state.device().upload(targets.bytes);
    return loss_on_device(heads, targets,
                          parts_.state.device().upload(scales_of(sizes)));
  }
  std::vector<loss::LevelTargets> targets = targets_of(micro_batch);
  loss::GlobalCounts counts = parts_.counts;
  if (parts_.context.images_are_split()) {
    for (size_t level = 0; level < heads.size(); ++level) {
      const int64_t rows = heads[level].size(2);
      const RowWindow window = parts_.context.window(rows);
      targets[level] =
          loss::targets_of_rows(targets[level], window.first_row, rows);
      counts.global_rows.push_back(window.global_rows);
    }
  }
  const loss::DetectionLoss loss =
      loss::detection_loss(heads, targets, counts, parts_.gains, teacher);
  parts_.items.add_(loss.items);
  return parts_.loss_scale == 1 ? loss.total
                                : loss.total.mul(parts_.loss_scale);
}

std::string StageStep::failed_phase() const {
  return begun_ && begun_->kind == Kind::kBackward ? "backward" : "forward";
}

std::vector<int64_t> StageStep::map_sizes(int64_t micro_batch, int layer) {
  return stage_map_sizes(parts_.state.model(), layer,
                         samples_of(micro_batch).size(), parts_.batch.images);
}

void StageStep::before_backward(int64_t micro_batch, bool) {
  begin_pass({Kind::kBackward, micro_batch});
}

void StageStep::begin_pass(const pipeline::Instruction& instruction) {
  StepGradients& gradients = parts_.state.gradients();
  begin_step_phase(instruction.kind == Kind::kForward ? StepPhase::kForward
                                                      : StepPhase::kBackward);
  const bool is_first = !begun_;
  begun_ = instruction;
  if (parts_.faults != nullptr && is_first) {
    parts_.faults->strike(configs::Fault::Phase::kForward, parts_.batch.step);
  }
  if (parts_.faults != nullptr && instruction.kind == Kind::kBackward) {
    parts_.faults->strike(configs::Fault::Phase::kBackward, parts_.batch.step);
  }
  if (instruction.kind == Kind::kForward) {
    gradients.begin_forward();
  } else {
    gradients.begin_micro_batch(is_last(instruction.micro_batch));
  }
}

}  // namespace headroom::step
