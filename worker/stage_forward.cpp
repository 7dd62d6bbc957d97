#include "worker/stage_forward.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <utility>

#include "worker/network_input.h"
#include "worker/parallelize.h"
#include "worker/stage_rows.h"

namespace headroom {
namespace {

Plan replica_plan(int world_size) {
  Plan plan;
  plan.layout.data_parallel_size = world_size;
  plan.micro_batch_size = 1;
  plan.batch_norm_group_size = 1;
  return plan;
}

// The one forward of a batch, as the pipeline's executor runs it.
class Evaluation final : public StageWork {
 public:
  Evaluation(LayerGraph& model, const StageRoutes& routes,
             const at::Tensor& pixels, const at::Tensor& images,
             const StepContext& context, bool is_last_stage)
      : model_(model),
        routes_(routes),
        pixels_(pixels),
        images_(images),
        context_(context),
        is_last_stage_(is_last_stage) {}

  std::vector<at::Tensor> forward(int64_t,
                                  std::vector<at::Tensor> received) override {
    std::vector<at::Tensor> outputs =
        run_stage_rows(model_, routes_, std::move(received), images_, context_);
    if (!is_last_stage_) return outputs;
    heads_ = std::move(outputs);
    return {};
  }
  std::vector<int64_t> map_sizes(int64_t, int row) override {
    return stage_map_sizes(model_, row, pixels_.size(0), pixels_);
  }
  void before_backward(int64_t, bool) override {}
  void complete(const Instruction&) override {}

  std::vector<at::Tensor> take_heads() { return std::move(heads_); }

 private:
  LayerGraph& model_;
  const StageRoutes& routes_;
  const at::Tensor& pixels_;
  const at::Tensor& images_;
  const StepContext context_;
  const bool is_last_stage_;
  std::vector<at::Tensor> heads_;
};

}  // namespace

StageForward::StageForward(LayerGraph& model, StageRoutes routes, Mesh& mesh,
                           RankContext& context, at::ScalarType scalar_type,
                           GatherRowRunner* gathered)
    : model_(model),
      routes_(std::move(routes)),
      mesh_(mesh),
      context_(context),
      scalar_type_(scalar_type),
      gathered_(gathered),
      executor_(*mesh.pipeline, PipelineSchedule::kForwardOnly, routes_,
                at::TensorOptions(scalar_type)) {}

void StageForward::skip() {
  if (gathered_ != nullptr) gathered_->skip();
}

ReplicaForward::ReplicaForward(LayerGraph& model, Communicator& world,
                               at::ScalarType scalar_type)
    : plan(replica_plan(world.size())),
      mesh(world, plan.layout),
      context(plan, /*global_batch_size=*/1, model.max_stride(), mesh,
              /*lists=*/nullptr, scalar_type, /*runner=*/nullptr),
      network(model, routes_of_stage(model, plan, 0), mesh, context,
              scalar_type, /*gathered=*/nullptr) {}

std::vector<at::Tensor> StageForward::run(const Batch& batch) {
  at::NoGradGuard no_grad;
  context_.set_batch(batch.global_size, batch.image_height, batch.image_width);
  if (is_alone()) return run_alone(batch, {0, batch.images.size(0)});
  std::vector<at::Tensor> outputs = run_rows(batch.images);
  if (!mesh_.is_last_stage()) return {};
  return context_.images_are_split() ? gather_rows(batch, outputs) : outputs;
}

std::vector<at::Tensor> StageForward::run_alone(const Batch& batch,
                                                SampleRange samples) {
  try {
    return run_rows(batch.images.narrow(0, samples.begin, samples.size()));
  } catch (const c10::OutOfMemoryError&) {
    if (samples.size() < 2) throw;
  }
  ++num_halvings_;
  const int64_t middle = samples.begin + samples.size() / 2;
  const auto first = run_alone(batch, {samples.begin, middle});
  const auto second = run_alone(batch, {middle, samples.end});
  std::vector<at::Tensor> heads;
  for (size_t level = 0; level < first.size(); ++level) {
    heads.push_back(at::cat({first[level], second[level]}));
  }
  return heads;
}

std::vector<at::Tensor> StageForward::run_rows(const at::Tensor& pixels) {
  at::Tensor images;
  if (routes_.reads_images) images = network_input(pixels, scalar_type_);
  Evaluation evaluation(model_, routes_, pixels, images, context_.evaluation(),
                        mesh_.is_last_stage());
  executor_.run(/*num_micro_batches=*/1, evaluation);
  return evaluation.take_heads();
}

// A head is [n, anchors, rows, W, fields], dense with rows outermost but n.
std::vector<at::Tensor> StageForward::gather_rows(
    const Batch& batch, const std::vector<at::Tensor>& heads) {
  std::vector<at::Tensor> whole;
  for (const at::Tensor& head : heads) {
    const int64_t stride = batch.images.size(1) / head.size(2);
    if (mesh_.here.spatial_rank != 0) {
      mesh_.spatial->send(head.contiguous(), 0);
      continue;
    }
    const RowPartition partition(batch.image_height, model_.max_stride(),
                                 mesh_.layout.spatial_parallel_size);
    std::vector<at::Tensor> parts = {head.contiguous()};
    for (int rank = 1; rank < mesh_.layout.spatial_parallel_size; ++rank) {
      std::vector<int64_t> sizes = head.sizes().vec();
      sizes[2] = partition.image_rows_of(rank).size() / stride;
      parts.push_back(at::empty(sizes, head.options()));
      mesh_.spatial->recv(parts.back(), rank);
    }
    whole.push_back(at::cat(parts, 2));
  }
  return whole;
}

}  // namespace headroom
