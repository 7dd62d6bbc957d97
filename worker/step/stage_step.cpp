#include "worker/step/stage_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "parallel/activations/step_phase.h"
#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "worker/loss/device_loss.h"
#include "worker/loss/device_place_loss.h"
#include "worker/step/apply_plan.h"
#include "worker/step/stage_forward.h"

namespace headroom::step {

using Kind = pipeline::Instruction::Kind;

StageStep::StageStep(const StepOptions& options, TrainingState& state,
                     const collectives::Mesh& mesh, ParallelContext& context)
    : options_(options),
      state_(state),
      mesh_(mesh),
      context_(context),
      routes_(routes_of_stage(state.model(), options.plan,
                              mesh.here.pipeline_stage)),
      images_(state.device(), options_.following),
      items_(at::zeros({kernels::kStepItems},
                       state.device().options(at::kDouble))),
      losses_(items_.narrow(0, 0, kNumLossTerms)) {}

void StageStep::begin(Part part, CudaGraphRunner* graphs, StepCommit& commit) {
  part_ = std::move(part);
  graphs_ = graphs;
  commit_ = &commit;
  begun_.reset();
  items_.zero_();
  context_.set_batch(part_.batch->global_size, part_.batch->image_height,
                     part_.batch->image_width);
}

model::StepContext StageStep::context_of(const Part& part,
                                         int64_t micro_batch) {
  model::StepContext context =
      context_.training(part.samples(micro_batch), state_.batch_norm_sums());
  // A layer's backward may add to its gradients directly only if they are not
  // sharded.
  context.adds_gradients = state_.gradients().sharded() == nullptr;
  return context;
}

at::Tensor StageStep::images_of(const Part& part, int64_t micro_batch,
                                const std::optional<at::Tensor>& into) {
  return images_.input(*part.batch, part.micro_batches,
                       static_cast<size_t>(micro_batch), state_.map_options(),
                       into);
}

CudaGraphRunner::MicroBatch StageStep::for_graph(const Part& part,
                                                 int64_t micro_batch) {
  const loader::Batch& batch = *part.batch;
  const plan::SampleRange& samples = part.samples(micro_batch);
  const auto own = [&](const at::Tensor& all) {
    return all.narrow(0, samples.begin - batch.local_begin, samples.size());
  };
  const std::vector<loss::HeadSize> sizes = head_sizes(part, micro_batch);
  CudaGraphRunner::MicroBatch inputs;
  inputs.loaded = own(batch.packed.defined() ? batch.packed : batch.images);
  inputs.image_sizes = own(batch.images).sizes().vec();
  inputs.map = [this, &part,
                micro_batch](const std::optional<at::Tensor>& into) {
    return images_of(part, micro_batch, into);
  };
  inputs.send_following = [this, &part, micro_batch] {
    images_.send_following(*part.batch, part.micro_batches,
                           static_cast<size_t>(micro_batch));
  };
  inputs.targets = packed_targets_of(part, micro_batch, sizes);
  inputs.scales = scales_of(part, sizes);
  return inputs;
}

void StageStep::prepare(const Part& next) {
  graphs_->prepare(for_graph(next, 0), context_of(next, 0));
}

std::vector<at::Tensor> StageStep::forward(int64_t micro_batch,
                                           std::vector<at::Tensor> received) {
  begin_pass({Kind::kForward, micro_batch});
  if (!state_.has_learners_before()) {
    for (at::Tensor& map : received) map = map.detach();
  }
  const model::StepContext context = context_of(part_, micro_batch);
  const auto run_layers = [&](const at::Tensor& pixels) {
    return run_stage_layers(state_.model(), routes_, std::move(received),
                            pixels, context);
  };
  if (graphs_ != nullptr) {
    CudaGraphRunner::MicroBatch own = for_graph(part_, micro_batch);
    own.end = commit_->numbers_in_graph(part_.is_last(micro_batch));
    own.ends_step = own.end.defined() && part_.is_last(micro_batch);
    CudaGraphRunner::End end;
    if (own.end.defined()) {
      end = [&](const CudaGraphRunner::MicroBatch& inputs) {
        state_.end_on_device(inputs.end, items_);
      };
    }
    return {graphs_->run(
        std::move(own), context,
        [&](const CudaGraphRunner::MicroBatch& inputs) {
          return loss_on_device(run_layers(inputs.images), inputs.targets,
                                inputs.scales);
        },
        end)};
  }
  at::Tensor images;
  if (routes_.reads_images) images = images_of(part_, micro_batch);
  // The teacher runs before the student, so that its maps are freed before the
  // student's are allocated.
  std::vector<at::Tensor> teacher;
  if (options_.teacher != nullptr) teacher = options_.teacher->heads(images);
  std::vector<at::Tensor> outputs = run_layers(images);
  if (!mesh_.is_last_stage()) return outputs;
  return {loss_of(micro_batch, outputs, teacher)};
}

std::vector<loss::LevelTargets> StageStep::targets_of(
    const Part& part, int64_t micro_batch,
    const std::vector<loss::HeadSize>& heads) const {
  const loader::Batch& batch = *part.batch;
  std::vector<loss::LevelTargets> targets =
      part.is_cut()
          ? options_.assign(loader::labels_of(batch, part.samples(micro_batch)),
                            batch.image_height, batch.image_width)
          : batch.targets[static_cast<size_t>(micro_batch)];
  if (!context_.images_are_split()) return targets;
  for (size_t level = 0; level < heads.size(); ++level) {
    const int64_t rows = heads[level].height;
    targets[level] = loss::targets_of_rows(
        targets[level], context_.window(rows).first_row, rows);
  }
  return targets;
}

loss::GlobalCounts StageStep::counts_of(
    const Part& part, const std::vector<loss::HeadSize>& heads) const {
  loss::GlobalCounts counts = part.counts;
  if (!context_.images_are_split()) return counts;
  for (const loss::HeadSize& head : heads) {
    counts.global_rows.push_back(context_.window(head.height).global_rows);
  }
  return counts;
}

int64_t StageStep::match_capacity(const Part& part) const {
  if (graphs_ == nullptr) return 0;
  const predict::BoxBound boxes =
      predict::most_boxes(options_.labels, part.micro_batches.front().size());
  if (!state_.model().has_anchors()) return boxes.boxes;  // labels
  return predict::most_matches(
      boxes.boxes,
      static_cast<int64_t>(state_.model().levels().front().anchors.size()));
}

std::vector<loss::HeadSize> StageStep::head_sizes(const Part& part,
                                                  int64_t micro_batch) const {
  std::vector<loss::HeadGrid> grids;
  for (const model::LayerGraph::Level& level : state_.model().levels()) {
    grids.push_back({level.stride, static_cast<int64_t>(level.anchors.size())});
  }
  return loss::head_sizes(grids, options_.gains.num_classes,
                          part.samples(micro_batch).size(),
                          part.batch->image_height, part.batch->image_width);
}

loss::PackedTargets StageStep::packed_targets_of(
    const Part& part, int64_t micro_batch,
    const std::vector<loss::HeadSize>& heads) const {
  const loader::Batch& batch = *part.batch;
  if (!state_.model().has_anchors()) {
    const plan::SampleRange& samples = part.samples(micro_batch);
    const at::ScalarType maps =
        c10::typeMetaToScalarType(state_.map_options().dtype());
    return loss::pack_labels(
        loader::labels_of(batch, samples), options_.gains.num_classes,
        samples.size(), batch.image_height, batch.image_width,
        maps == at::kDouble ? maps : at::kFloat, match_capacity(part));
  }
  if (!part.is_cut() && !batch.packed_targets.empty() &&
      !context_.images_are_split()) {
    return batch.packed_targets[static_cast<size_t>(micro_batch)];
  }
  return loss::pack_targets(targets_of(part, micro_batch, heads), heads,
                            match_capacity(part));
}

at::Tensor StageStep::scales_of(
    const Part& part, const std::vector<loss::HeadSize>& heads) const {
  if (!state_.model().has_anchors()) {
    return loss::place_scales(static_cast<double>(part.counts.images),
                              part.loss_scale);
  }
  return loss::detection_scales(heads, counts_of(part, heads), options_.gains,
                                part.loss_scale);
}

at::Tensor StageStep::loss_on_device(const std::vector<at::Tensor>& heads,
                                     const loss::PackedTargets& targets,
                                     const at::Tensor& scales) {
  if (!state_.model().has_anchors()) {
    const loss::PlaceLoss loss = loss::device_place_loss(
        *state_.device().kernels(), place_maps_of(heads), targets, scales,
        place_rule(), gather_rows());
    items_.add_(loss.items);
    return loss.total;
  }
  const loss::DetectionLoss loss =
      loss::detection_loss(heads, targets, scales, options_.gains);
  losses_.add_(loss.items);
  return loss.total;
}

at::Tensor StageStep::loss_of(int64_t micro_batch,
                              const std::vector<at::Tensor>& heads,
                              const std::vector<at::Tensor>& teacher) {
  const bool has_anchors = state_.model().has_anchors();
  std::vector<loss::HeadSize> sizes;
  for (const at::Tensor& head : heads) {
    if (has_anchors) sizes.push_back(loss::size_of(head));
  }
  if (!state_.device().is_cpu()) {
    HEADROOM_CHECK(teacher.empty(), "a teacher's heads are on the CPU");
    const MemoryCategoryScope scope(MemoryCategory::kLoss);
    loss::PackedTargets targets = packed_targets_of(part_, micro_batch, sizes);
    targets.bytes = state_.device().upload(targets.bytes);
    return loss_on_device(heads, targets,
                          state_.device().upload(scales_of(part_, sizes)));
  }
  if (!has_anchors) return place_loss_of(micro_batch, heads);
  const loss::DetectionLoss loss =
      loss::detection_loss(heads, targets_of(part_, micro_batch, sizes),
                           counts_of(part_, sizes), options_.gains, teacher);
  losses_.add_(loss.items);
  return part_.loss_scale == 1 ? loss.total : loss.total.mul(part_.loss_scale);
}

// The heads are all levels' distances, then all levels' classes.
std::vector<loss::PlaceMaps> StageStep::place_maps_of(
    const std::vector<at::Tensor>& heads) const {
  const std::vector<model::LayerGraph::Level>& levels = state_.model().levels();
  std::vector<loss::PlaceMaps> maps;
  for (size_t level = 0; level < levels.size(); ++level) {
    maps.push_back(
        {heads[level], heads[levels.size() + level], levels[level].stride});
    if (!context_.images_are_split()) continue;
    const RowWindow window = context_.window(heads[level].size(2));
    maps.back().first_row = window.first_row;
    maps.back().height = window.global_rows;
  }
  return maps;
}

loss::GatherParts StageStep::gather_rows() const {
  if (!context_.images_are_split()) return {};
  return [this](const at::Tensor& own) {
    const int64_t ranks = mesh_.spatial->size();
    const at::Tensor all = at::empty({ranks * own.numel()}, own.options());
    mesh_.spatial->all_gather(all, own.view({-1}));
    std::vector<at::Tensor> parts;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      parts.push_back(
          all.narrow(0, rank * own.numel(), own.numel()).view(own.sizes()));
    }
    return parts;
  };
}

loss::PlaceLossRule StageStep::place_rule() const {
  loss::PlaceLossRule rule;
  rule.gains = options_.place_gains;
  rule.num_classes = options_.gains.num_classes;
  rule.images = static_cast<double>(part_.counts.images);
  rule.factor = part_.loss_scale;
  return rule;
}

at::Tensor StageStep::place_loss_of(int64_t micro_batch,
                                    const std::vector<at::Tensor>& heads) {
  const loss::PlaceLoss loss = loss::place_loss(
      place_maps_of(heads),
      loader::labels_of(*part_.batch, part_.samples(micro_batch)), place_rule(),
      gather_rows());
  items_.add_(loss.items);
  return loss.total;
}

std::string StageStep::failed_phase() const {
  return begun_ && begun_->kind == Kind::kBackward ? "backward" : "forward";
}

std::vector<int64_t> StageStep::map_sizes(int64_t micro_batch, int layer) {
  return stage_map_sizes(state_.model(), layer,
                         part_.samples(micro_batch).size(),
                         part_.batch->images);
}

void StageStep::before_backward(int64_t micro_batch, bool) {
  begin_pass({Kind::kBackward, micro_batch});
}

void StageStep::begin_pass(const pipeline::Instruction& instruction) {
  StepGradients& gradients = state_.gradients();
  begin_step_phase(instruction.kind == Kind::kForward ? StepPhase::kForward
                                                      : StepPhase::kBackward);
  const bool is_first = !std::exchange(begun_, instruction);
  if (FaultInjection* const faults = options_.faults) {
    using Phase = configs::Fault::Phase;
    const int64_t step = part_.batch->step;
    if (is_first) faults->strike(Phase::kForward, step);
    if (instruction.kind == Kind::kBackward) {
      faults->strike(Phase::kBackward, step);
    }
  }
  if (instruction.kind == Kind::kForward) {
    gradients.begin_forward();
  } else {
    gradients.begin_micro_batch(part_.is_last(instruction.micro_batch));
  }
}

}  // namespace headroom::step
